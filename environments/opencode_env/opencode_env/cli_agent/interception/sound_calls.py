"""Calls at which the engine or an agent would fail, made calls that can only fail themselves.

Readers of JSON give up at some depth, each at its own, and the engine's fails with an answer that it has recorded: an
agent would ask again, and a policy could be sampled anew whenever it likes. A call whose id is a name that every
JavaScript object has, such as `toString`, which a policy can choose where the id is sampled, ends an agent that keeps
its calls by id; one without an id ends an agent that needs it. So does a call of a "tool" of such a name in an answer
that says that it stopped. Invariant: arguments that leave here every reader reads, or refuses at their first character;
ids are keys like any other; an answer with calls does not say that it stopped. One that was cut off by its length says
so, and may end there.
"""

import re
import uuid
from typing import Any

from verifiers.v1.types import Response

MAX_DEPTH = 500
"""How deep lists and objects of one call's arguments may nest; Python's reader gives up below a thousand."""

UNREADABLE = "\ufffd"
"""Stands in front of arguments that nest deeper."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|([\[{])|([\]}])', re.DOTALL)
_OF_EVERY_OBJECT = frozenset(
    {
        *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString"),
        *("valueOf", "__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    }
)


def sound_arguments(text: str) -> str:
    """The same text, or one that is not JSON from its first character on."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return text
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += (found[1] is not None) - (found[2] is not None)
        if depth > MAX_DEPTH:
            return UNREADABLE + text
    return text


def sound_id(identity: str) -> str:
    """The same id, or one that no object has before it is a key."""
    return f"call_{identity}" if identity in _OF_EVERY_OBJECT else identity


def with_sound_calls(response: Response) -> Response:
    """The same answer, as a message and as the JSON of a chat completion; a call that has no id gets one."""
    for call in response.message.tool_calls or ():
        call.arguments, call.id = sound_arguments(call.arguments), sound_id(call.id) or f"call_{uuid.uuid4().hex}"
    for choice in (response.raw or {}).get("choices") or ():
        calls = (choice.get("message") or {}).get("tool_calls") or ()
        for raw in calls:
            _make_sound(raw)
        for raw, call in zip(calls, response.message.tool_calls or (), strict=False):
            raw["id"] = raw.get("id") or call.id
        if calls and choice.get("finish_reason") == "stop":
            choice["finish_reason"] = "tool_calls"
    return response


def _make_sound(raw: dict[str, Any]) -> None:
    function = raw.get("function")
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        function["arguments"] = sound_arguments(function["arguments"])
    if isinstance(raw.get("id"), str):
        raw["id"] = sound_id(raw["id"])
