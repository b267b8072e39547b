"""What OpenCode 1.18.33 makes of its model's answers when it sends them back, rule by rule.

Its AI SDK parses the arguments of every call and writes them again, keeps text and reasoning of an answer in one piece
each, and has an answer that it could not run by a call of its own tool `invalid`. Values are therefore compared as
JavaScript sees them. Invariant: whatever else differs is a change of the history and no echo.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from verifiers.v1.types import AssistantMessage, ToolCall

from opencode_env.cli_agent.interception.echo_rules import Wire
from opencode_env.opencode import javascript_json

_STEP_LIMIT = "CRITICAL - MAXIMUM STEPS REACHED\n"
_INVALID = "invalid"


class OpenCodeEcho:
    """OpenCode's rules, for the gateway on the way to the model."""

    conversation_header = "x-session-id"
    """Names OpenCode's session; sub-agents have one each."""

    def recognise(self, sampled: AssistantMessage, echo: Wire) -> Sequence[str] | None:
        """The sampled ids of the echo's calls, in the order that they have there; None when it is no echo of that
        answer.

        Content: null comes back as "". Reasoning: `reasoning` comes back as `reasoning_content`, and as "" where there
        was none, or only `reasoning_details`, which OpenCode does not read.
        """
        reasoning = echo.get("reasoning_content") or ""
        unread = sampled.provider_state is not None and not reasoning
        if (sampled.content or "") != (echo.get("content") or ""):
            return None
        if not unread and (sampled.reasoning_content or "") != reasoning:
            return None
        return _sampled_ids(sampled.tool_calls or [], echo.get("tool_calls") or [])

    def leaves_out(self, sampled: AssistantMessage) -> bool:
        """An answer without text, reasoning and calls is missing from the history."""
        return not (sampled.content or sampled.reasoning_content or sampled.tool_calls)

    def says_once(self, message: AssistantMessage) -> bool:
        """At an agent's step limit (`steps`) a request ends with an order to stop, which is never sent again."""
        return (message.content or "").startswith(_STEP_LIMIT)


def _sampled_ids(sampled: Sequence[ToolCall], echoed: Sequence[Wire]) -> list[str] | None:
    """The ids of the calls that were echoed, in the order in which they arrived; every id comes back.

    Of several calls with one id OpenCode keeps one, or each that came when the one before had failed already; what it
    keeps may have the name of one and the arguments of another.
    """
    wanted = {call.id for call in sampled}
    for spell in _ID_SPELLINGS:
        left, ids = list(sampled), list[str]()
        for echo in echoed:
            same = (one for one in left if spell(one.id) == echo["id"] and _is_kept(one, sampled, echo["function"]))
            if (found := next(same, None)) is None:
                break
            left.remove(found)
            ids.append(found.id)
        if len(ids) == len(echoed) and set(ids) == wanted:
            return ids
    return None


def _mistral_id(identity: str) -> str:
    return re.sub("[^a-zA-Z0-9]", "", identity)[:9].ljust(9, "0")


_ID_SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda identity: identity,
    lambda identity: re.sub("[^a-zA-Z0-9_-]", "_", identity),
    _mistral_id,
)
"""Ids come back as they were; with letters replaced when the model is named after Claude, cut to nine when after one
of Mistral's, where several of an answer can become the same."""


def _is_kept(one: ToolCall, sampled: Sequence[ToolCall], echo: Wire) -> bool:
    of_one_id = (other for other in sampled if other.id == one.id)
    return any(_is_call(one.name, other.arguments, echo) for other in of_one_id)


def _is_call(sampled_name: str, sampled: str, echo: Wire) -> bool:
    """Whether that is what OpenCode makes of a call with this name and these arguments."""
    name, arguments = echo["name"], echo["arguments"]
    if name == sampled_name and arguments == sampled:
        return True
    try:
        given = javascript_json.parse(arguments)
    except ValueError:
        return False
    # A tool is found whatever the case of its name.
    found = name in (sampled_name, sampled_name.lower())
    if found and any(javascript_json.same(value, given) for value in _inputs(sampled)):
        return True
    # No such tool, no JSON, or a key `__proto__`: the call becomes one of `invalid`, with what is wrong.
    return name == _INVALID and _is_refusal(given, sampled_name)


def _inputs(arguments: str) -> Iterator[Any]:
    """What a tool may get for these arguments: nothing is {}, and what is no object is wrapped in one."""
    if not arguments.strip(javascript_json.JAVASCRIPT_SPACE):
        yield {}
    with suppress(ValueError):
        yield _wrapped(javascript_json.parse(arguments))
    # Under a name of another case, what could not be read comes as a text.
    yield _wrapped(arguments)
    # In a stream, a call is complete as soon as what has come of its arguments is JSON.
    yield from map(_wrapped, javascript_json.beginnings(arguments))


def _wrapped(value: Any) -> Any:
    return value if isinstance(value, dict) else {"value": value}


def _is_refusal(given: object, name: str) -> bool:
    if not isinstance(given, dict) or given.keys() != {"tool", "error"}:
        return False
    return given["tool"] == name and isinstance(given["error"], str)
