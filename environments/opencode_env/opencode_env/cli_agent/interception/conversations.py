"""Which conversation of a rollout each model call belongs to, kept beside the trace's graph.

verifiers tells conversations apart by their texts alone, so that two of the same texts flow into one. Invariant: of
several answers with one text a conversation goes on behind its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from verifiers.v1.graph import MessageNode, message_hash

_conversation: ContextVar[str | None] = ContextVar("opencode_env_conversation", default=None)
_way: ContextVar[Mapping[int | None, int]] = ContextVar("opencode_env_way", default=MappingProxyType({}))
"""Of the request that is served here: the node that follows each node of its history."""

NodeKey = tuple[int | None, str | None, str]


@contextmanager
def in_conversation(name: str | None) -> Iterator[None]:
    """Serve a request of that conversation; None is one that does not say."""
    name_token, way_token = _conversation.set(name), _way.set({})
    try:
        yield
    finally:
        _way.reset(way_token)
        _conversation.reset(name_token)


def current_conversation() -> str | None:
    """The conversation of the request that is served here."""
    return _conversation.get()


def follow(path: Sequence[int]) -> None:
    """Let the graph find exactly these nodes for the request that is served here."""
    _way.set(dict(zip([None, *path], path, strict=False)))


class OwnNodes(dict[NodeKey, int]):
    """The graph's index of nodes by what they say, which prefers the nodes of the request's own history.

    Args:
        nodes: of the trace.
    """

    def __init__(self, nodes: Sequence[MessageNode]) -> None:
        super().__init__()
        self._nodes = nodes

    def get(self, key: NodeKey, default: int | None = None) -> int | None:  # type: ignore[override]
        """The node that says this behind a node."""
        found = super().get(key, default)
        own = _way.get().get(key[0])
        if own is None or own == found or found is None:
            return found
        return own if message_hash(self._nodes[own].message) == key[2] else found
