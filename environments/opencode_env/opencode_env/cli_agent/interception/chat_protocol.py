"""Which sampled answers a chat endpoint takes back as they are, and what it gets in place of the others.

A policy may sample anything, and a strict endpoint answers what it does not take with a 400 that a policy could then
provoke at will. Invariant: whatever was sampled, the messages that leave here are valid.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_sandbox.surrogates import whole_text
from pydantic_core import from_json
from verifiers.v1.types import AssistantMessage, ToolCall

Message = dict[str, Any]
"""A chat message as it stands in a request."""

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
    """The calls of an echo, an agent's form of an answer, in its order; no two of them get one id on the wire.
    `sampled` are the ids that they had (None = those that they have), `valid` is whether an endpoint `takes_back`
    them."""
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
    """Whether an answer is valid in a request: its calls have one id each, names that a tool can have, and objects
    for arguments."""
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


def sampled_on_wire(sampled: AssistantMessage, echo: Message) -> Message:
    """An answer that an endpoint `takes_back`: with the words that were sampled, and otherwise as its agent sent it."""
    wire: Message = dict(echo)
    if sampled.tool_calls:
        wire["tool_calls"] = [call_on_wire(call, call.id or _NO_ID) for call in sampled.tool_calls]
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
