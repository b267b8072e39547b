"""How far a request's history was found in the trace's graph, and how it reads there and for a chat endpoint.

A partial answer is what an agent kept of an answer that reached it in part before the whole of it reached it again.
Sent back with the history, it is an assistant message that the model never said there, and would fork the trace.
Invariant: only a beginning of an answer that was asked for more than once, where it was sampled and in the conversation
that it was sampled in, is taken for one; and never what stands there no more often than the model said it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from opencode_env.cli_agent.interception.chat_protocol import Issued, Message, echo_on_wire, issued_calls

Said = tuple[str, tuple[str, ...]]
"""What an assistant message is known by: its text and the ids of its calls, which agents leave as they are."""


@dataclass
class Restored:
    """The part of a request's history that is in the graph."""

    path: list[int] = field(default_factory=list)
    """The nodes of that part."""
    wire: list[Message | None] = field(default_factory=list)
    """Each of them as a chat endpoint gets it; None where it gets nothing."""
    taken: int = 0
    """How many messages of the request they stand for."""
    owed: list[Issued] = field(default_factory=list)
    """Calls of the newest answer whose results have not come, in the agent's order."""
    partial: list[Said] = field(default_factory=list)
    """What the parts of answers said that stand for nothing."""

    @property
    def end(self) -> int | None:
        """The last node."""
        return self.path[-1] if self.path else None

    def result_of(self, echo: Message) -> Issued | None:
        """The call whose result a message is; of several that the agent gave one id, the first."""
        identity = echo.get("tool_call_id")
        return next((call for call in self.owed if call.echoed == identity), None)

    def answer_as_it_came(self, echo: Message) -> Message:
        """An answer for a chat endpoint that echoes no sampled one; its calls are owed their results from here on."""
        self.owed = issued_calls(echo, None, valid=False)
        return echo_on_wire(echo, self.owed)

    def result_on_wire(self, echo: Message, issued: Issued | None) -> Message:
        """A message for a chat endpoint; a result is then no longer owed."""
        if issued is None:
            return echo
        self.owed.remove(issued)
        return echo if issued.wire == issued.echoed else {**echo, "tool_call_id": issued.wire}

    def add(self, node: int, wire: Message | None, taken: int = 1) -> None:
        """Go on to a node."""
        self.path.append(node)
        self.wire.append(wire)
        self.taken += taken

    def ahead(self, skipped: int = 0) -> "Restored":
        """A search that goes on from here, behind so many more messages, and leaves this one as it is."""
        return Restored(path=self.path[-1:], taken=self.taken + skipped, owed=list(self.owed))


def said(message: dict[str, Any]) -> Said:
    """What an assistant message of a request is known by."""
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    ids = [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return (content if isinstance(content, str) else "", tuple(ids))


def partial_before(
    messages: Sequence[dict[str, Any]], first: int, is_whole: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """The messages from position `first`, an assistant message, on that come before one that `is_whole`, the echo of a
    whole answer, each a beginning of it or a result of its calls; none when there is no such answer."""
    partial: list[Said] = []
    for position in range(first, len(messages)):
        message = messages[position]
        if message.get("role") == "assistant":
            own = said(message)
            if partial and all(_begins(half, own) for half in partial) and is_whole(message):
                return list(messages[first:position])
            partial.append(own)
        elif message.get("role") != "tool" or not any(message.get("tool_call_id") in ids for _, ids in partial):
            break
    return []


def _begins(half: Said, whole: Said) -> bool:
    (text, ids), (whole_text, whole_ids) = half, whole
    return whole_text.startswith(text) and whole_ids[: len(ids)] == ids
