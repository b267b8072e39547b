"""Calls at which the engine or an agent would fail, made calls that can only fail themselves.

Readers of JSON give up at some depth, each at its own, and the engine's fails with an answer that it has recorded: an
agent would ask again, and a policy could be sampled anew whenever it likes. A call with the id `__proto__`, which a
policy can choose where the id is sampled, ends an agent in JavaScript that keeps its calls by id. So does a call of a
"tool" that every JavaScript object has, such as `constructor`, in an answer that calls it and says that it stopped.
Invariant: arguments that leave here every reader reads, or refuses at their first character; ids are keys like any
other; an answer with calls goes on.
"""

import re
from typing import Any

from verifiers.v1.types import Response

MAX_DEPTH = 500
"""How deep lists and objects of one call's arguments may nest; Python's reader gives up below a thousand."""

UNREADABLE = "\ufffd"
"""Stands in front of arguments that nest deeper."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|([\[{])|([\]}])', re.DOTALL)
_NO_KEY = "__proto__"


def sound_arguments(text: str) -> str:
    """The same text, or one that is no JSON from its first character on."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return text
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += (found[1] is not None) - (found[2] is not None)
        if depth > MAX_DEPTH:
            return UNREADABLE + text
    return text


def sound_id(identity: str) -> str:
    """The same id, or one that is the key of an object."""
    return f"call_{identity}" if identity == _NO_KEY else identity


def with_sound_calls(response: Response) -> Response:
    """The same answer, as a message and as the JSON of a chat completion."""
    for call in response.message.tool_calls or ():
        call.arguments, call.id = sound_arguments(call.arguments), sound_id(call.id)
    for choice in (response.raw or {}).get("choices") or ():
        calls = (choice.get("message") or {}).get("tool_calls") or ()
        for raw in calls:
            _make_sound(raw)
        if calls and choice.get("finish_reason") == "stop":
            choice["finish_reason"] = "tool_calls"
    return response


def _make_sound(raw: dict[str, Any]) -> None:
    function = raw.get("function")
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        function["arguments"] = sound_arguments(function["arguments"])
    if isinstance(raw.get("id"), str):
        raw["id"] = sound_id(raw["id"])
