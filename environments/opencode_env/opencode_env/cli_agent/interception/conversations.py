"""Which conversation of a rollout each model call belongs to, kept beside the trace's graph: which nodes are a
conversation's own, and which answers were asked for again.

verifiers tells conversations apart by their texts alone, so that two of the same texts flow into one. Invariant: a node
is of a conversation when one of its answers stands on it or behind it; what the trace began with is every
conversation's own; of several answers with one text a conversation goes on behind its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from verifiers.v1.graph import MessageNode, message_hash

from opencode_env.cli_agent.traces import lineage

Asked = tuple[str | None, bytes]
"""A request by its conversation (None: it does not say) and the identity of its body."""


class AskedRequests:
    """The requests of one session."""

    def __init__(self, nodes: Sequence[MessageNode]) -> None:
        self._nodes = nodes
        self._seeded = len(nodes)
        self._own: dict[str | None, set[int]] = {}
        """By conversation, the nodes of its requests and answers."""
        self._requests: dict[int, Asked] = {}
        """By node of an answer, the request that it was given to."""
        self._answered: set[Asked] = set()
        self._times: dict[Asked, int] = {}
        """How often a request came that has an answer, or waits for one."""
        self.ends: dict[int, dict[str, Any]] = {}
        """By node, the assistant messages with which requests ended, as a chat endpoint got them."""

    @contextmanager
    def serving(self, asked: Asked) -> Iterator[None]:
        """Serve a request; of one that gets no answer nothing is kept."""
        self._times[asked] = self._times.get(asked, 0) + 1
        try:
            yield
        finally:
            if asked not in self._answered:
                self._times[asked] -= 1
                if not self._times[asked]:
                    del self._times[asked]

    def committed(self, node: int, asked: Asked, end: dict[str, Any]) -> None:
        """Take up a new answer to a request that ended with this message, as a chat endpoint got it."""
        parent = self._nodes[node].parent
        self._requests[node] = asked
        self._answered.add(asked)
        if parent is not None and end.get("role") == "assistant":
            self.ends[parent] = end
        own = self._own.setdefault(asked[0], set())
        own.update([*takewhile(lambda here: here not in own, lineage(self._nodes, node))])

    def is_own(self, node: int, conversation: str | None) -> bool:
        """Whether a node is of a conversation: the nodes that the trace began with are of all."""
        return node < self._seeded or node in self._own.get(conversation, ())

    def again(self, node: int) -> bool:
        """Whether the request that an answer was given to came more than once."""
        asked = self._requests.get(node)
        return asked is not None and self._times[asked] > 1


NodeKey = tuple[int | None, str | None, str]

_path: ContextVar[Mapping[int | None, int]] = ContextVar("opencode_env_path", default=MappingProxyType({}))
"""Of the call that is served here: the node that follows each node of its history.

The only context variable of a call: verifiers' graph asks its index without saying for which call. A `prefix` argument
of `verifiers.v1.graph.prepare_turn`, kept on its `PendingTurn`, would end it, and `OwnNodes`.
"""


@contextmanager
def finding_own_nodes() -> Iterator[None]:
    """Serve one call."""
    token = _path.set({})
    try:
        yield
    finally:
        _path.reset(token)


def follow(path: Sequence[int]) -> None:
    """Let the graph find exactly these nodes for the call that is served here."""
    _path.set(dict(zip([None, *path], path, strict=False)))


class OwnNodes(dict[NodeKey, int]):
    """The graph's index of nodes by what they say, which prefers the nodes of the call's own history."""

    def __init__(self, nodes: Sequence[MessageNode]) -> None:
        super().__init__()
        self._nodes = nodes

    def get(self, key: NodeKey, default: int | None = None) -> int | None:  # type: ignore[override]
        found = super().get(key, default)
        own = _path.get().get(key[0])
        if own is None or own == found or found is None:
            return found
        return own if message_hash(self._nodes[own].message) == key[2] else found
