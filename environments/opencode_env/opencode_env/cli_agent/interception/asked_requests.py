"""The requests of a session by their conversations: which nodes are a conversation's own, which answers came again.

Invariant: a node is of a conversation when one of its answers stands on it or behind it; what the trace began with is
every conversation's own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from verifiers.v1.graph import MessageNode

from opencode_env.cli_agent.interception.chat_protocol import Message
from opencode_env.cli_agent.interception.conversations import current_conversation

Asked = tuple[str | None, bytes]
"""A request by its conversation (None: it does not say) and its body."""


@dataclass
class _Served:
    asked: Asked
    end: Message = field(default_factory=dict)
    """The last message, as a chat endpoint gets it."""


_served: ContextVar[_Served | None] = ContextVar("opencode_env_served", default=None)
"""The request that is served here."""


class AskedRequests:
    """Keeps them for one session.

    Args:
        nodes: of its trace.
    """

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
        self._ends: dict[int, Message] = {}
        """By node, the assistant messages with which requests ended."""

    @contextmanager
    def serving(self, body: bytes) -> Iterator[None]:
        """Serve a request with that body; of one that gets no answer nothing is kept."""
        asked = current_conversation(), body
        self._times[asked] = self._times.get(asked, 0) + 1
        token = _served.set(_Served(asked))
        try:
            yield
        finally:
            _served.reset(token)
            if asked not in self._answered:
                self._times[asked] -= 1
                if not self._times[asked]:
                    del self._times[asked]

    def committed(self, node: int) -> None:
        """Take up a new answer to the request that is served here."""
        served, parent = _served.get(), self._nodes[node].parent
        if served is not None:
            self._requests[node] = served.asked
            self._answered.add(served.asked)
            if parent is not None and served.end.get("role") == "assistant":
                self._ends[parent] = served.end
        own = self._own.setdefault(current_conversation(), set())
        here: int | None = node
        while here is not None and here not in own:
            own.add(here)
            here = self._nodes[here].parent

    def ends_with(self, message: Message) -> None:
        """Note with what the request that is served here ends, as a chat endpoint gets it."""
        served = _served.get()
        if served is not None:
            served.end = message

    def end(self, node: int) -> Message | None:
        """What a chat endpoint got for an assistant message with which a request ended."""
        return self._ends.get(node)

    def is_own(self, node: int) -> bool:
        """Whether a node is of the conversation of the request that is served here."""
        return node < self._seeded or node in self._own.get(current_conversation(), ())

    def again(self, node: int) -> bool:
        """Whether the request that an answer was given to came more than once."""
        asked = self._requests.get(node)
        return asked is not None and self._times[asked] > 1
