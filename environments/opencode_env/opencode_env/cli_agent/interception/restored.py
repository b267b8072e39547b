"""How far a request's history was found in the trace's graph, and how it reads there and for a chat endpoint.

A policy may sample anything, and a strict endpoint answers what it does not take with a 400 that a policy could then
provoke at will. Invariant: whatever was sampled, the messages that leave here are valid.

A partial answer is what an agent kept of an answer that reached it in part before the whole of it reached it again.
Sent back with the history, it is an assistant message that the model never said there, and would fork the trace.
Invariant: only a beginning of an answer that was asked for more than once, where it was sampled and in the conversation
that it was sampled in, is taken for one; and never what stands there no more often than the model said it.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json
from rollout_sandbox.surrogates import whole_text
from verifiers.v1.types import AssistantMessage, ToolCall

Message = dict[str, Any]
"""A chat message as it stands in a request."""

CALL_FIELDS = "call_fields"
"""Key in a trace's `info`: by node, for each call of an answer what the endpoint said of it beside OpenAI's fields and
wants back, such as the signature of a thought; absent without any."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_ID = "call_without_id"
"""Stands for the empty id, which a model may give to one call of an answer."""


@dataclass(frozen=True)
class Issued:
    """One call of an answer: its ids in the three forms of a history."""

    echoed: str
    """The agent's."""
    sampled: str
    wire: str
    """For a chat endpoint."""


def issued_calls(echo: Message, sampled: Sequence[str] | None, *, valid: bool) -> list[Issued]:
    """The calls of an echo, an agent's form of an answer, in its order; no two get one id on the wire. `sampled`
    are the ids that they had (None = those that they have), `valid` is whether an endpoint `takes_back` them."""
    given = [call["id"] for call in echo.get("tool_calls") or ()]
    issued: dict[str, Issued] = {}
    for own, identity in zip(given, given if sampled is None else sampled, strict=True):
        wanted = wire = (identity if valid else own) or _NO_ID
        number = 1
        while wire in issued:
            number += 1
            wire = f"{wanted}_{number}"
        issued[wire] = Issued(own, identity, wire)
    return list(issued.values())


def takes_back(sampled: AssistantMessage) -> bool:
    """Whether an answer is valid in a request: calls have one id each, names of tools, and objects for arguments."""
    calls, said = sampled.tool_calls or [], sampled.content or sampled.reasoning_content
    if len({call.id for call in calls}) != len(calls):
        return False
    named = all(call.type == "function" and _NAME.fullmatch(call.name) for call in calls)
    return named and bool(calls or said) and all(_is_object(call.arguments) for call in calls)


def _is_object(arguments: str) -> bool:
    """Whether a text is a JSON object by the strictest of the readers: no NaN, no lone surrogate, not too deep."""
    try:
        return isinstance(from_json(arguments, allow_inf_nan=False), dict)
    except ValueError:
        return False


def sampled_on_wire(sampled: AssistantMessage, echo: Message, fields: Sequence[dict[str, Any]] = ()) -> Message:
    """An answer that an endpoint `takes_back`: with the words that were sampled, and otherwise as its agent sent it.
    `fields` are for each call those that the endpoint gave beside OpenAI's: some want them back, and few agents keep
    them."""
    wire: Message = dict(echo)
    if sampled.tool_calls:
        wire["tool_calls"] = [call_on_wire(call, call.id or _NO_ID) for call in sampled.tool_calls]
        for call, more in zip(wire["tool_calls"], fields, strict=False):
            call.update(more)
    if sampled.provider_state:
        wire["reasoning_details"] = sampled.provider_state
    return wire


def echo_on_wire(echo: Message, calls: Sequence[Issued]) -> Message:
    """An answer in its agent's form; arguments that even that leaves no object are one with their text in it."""
    if not calls:
        return echo
    pairs = zip(echo["tool_calls"], calls, strict=True)
    return {**echo, "tool_calls": [_echoed_call(call, issued.wire) for call, issued in pairs]}


def _echoed_call(call: Message, identity: str) -> Message:
    function = call["function"]
    if not _is_object(function["arguments"]):
        function = {**function, "arguments": json.dumps({"arguments": whole_text(function["arguments"])})}
    return {**call, "id": identity, "function": function}


def call_on_wire(call: ToolCall, identity: str) -> dict[str, Any]:
    """A function call as it stands in a request."""
    return {"id": identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


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


MOST_PARTIAL = 16
"""Halves of one answer that are looked for: more than an agent asks again."""


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
            if len(partial) > MOST_PARTIAL:
                break
        elif message.get("role") != "tool" or not any(message.get("tool_call_id") in ids for _, ids in partial):
            break
    return []


def _begins(half: Said, whole: Said) -> bool:
    (text, ids), (whole_text, whole_ids) = half, whole
    return whole_text.startswith(text) and whole_ids[: len(ids)] == ids
