"""Which sampled answers a chat endpoint takes back as they are.

A policy may sample anything, and a strict endpoint answers what it does not take with a 400 that a policy could then
provoke at will: such an answer goes back in the form that the agent gave it.
"""

import re
from typing import Any

from pydantic_core import from_json
from verifiers.v1.types import AssistantMessage, ToolCall

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def takes_back(sampled: AssistantMessage) -> bool:
    """Whether an answer is valid in a request: its calls have one id each, names that a tool can have, and objects
    for arguments."""
    calls = sampled.tool_calls or []
    ids = {call.id for call in calls}
    if len(ids) != len(calls) or "" in ids:
        return False
    return bool(calls or sampled.content or sampled.reasoning_content) and all(map(_is_valid, calls))


def _is_valid(call: ToolCall) -> bool:
    return call.type == "function" and _NAME.fullmatch(call.name) is not None and is_object(call.arguments)


def is_object(arguments: str) -> bool:
    """Whether a text is a JSON object by the strictest of the readers: no NaN, no half of a character."""
    try:
        return isinstance(from_json(arguments, allow_inf_nan=False), dict)
    except ValueError:
        return False


def call_on_wire(call: ToolCall, identity: str) -> dict[str, Any]:
    """A function call as it stands in a request."""
    return {"id": identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
