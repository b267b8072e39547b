"""What OpenCode 1.18.33 makes of its model's answers when it sends them back, rule by rule.

Its AI SDK parses the arguments of every call and writes them again, keeps text and reasoning of an answer in one piece
each, and has an answer that it could not run by a call of its own tool `invalid`. Values are therefore compared as
JavaScript sees them. Invariant: whatever else differs is a change of the history and no echo.
"""

import re
from collections.abc import Callable, Mapping, Sequence
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

    def recognise(self, sampled: AssistantMessage, echo: Wire) -> Mapping[str, str] | None:
        """The sampled ids of the echo's calls by the ids they have there; None when it is no echo of that answer.

        Content: null comes back as "". Reasoning: `reasoning` comes back as `reasoning_content`, and as "" where there
        was none, or only `reasoning_details`, which OpenCode does not read.
        """
        reasoning = echo.get("reasoning_content") or ""
        unread = sampled.provider_state is not None and not reasoning
        if (sampled.content or "") != (echo.get("content") or ""):
            return None
        if not unread and (sampled.reasoning_content or "") != reasoning:
            return None
        return _pairs(sampled.tool_calls or [], echo.get("tool_calls") or [])

    def leaves_out(self, sampled: AssistantMessage) -> bool:
        """An answer without text, reasoning and calls is missing from the history."""
        return not (sampled.content or sampled.reasoning_content or sampled.tool_calls)

    def says_once(self, message: AssistantMessage) -> bool:
        """At an agent's step limit (`steps`) a request ends with an order to stop, which is never sent again."""
        return (message.content or "").startswith(_STEP_LIMIT)


def _pairs(sampled: Sequence[ToolCall], echoed: Sequence[Wire]) -> dict[str, str] | None:
    """Sampled ids by echoed ids.

    Of several calls with one id OpenCode keeps one. It gives the calls in the order in which they arrived.
    """
    for spell in _ID_SPELLINGS:
        by_id: dict[str, list[ToolCall]] = {}
        for call in sampled:
            by_id.setdefault(spell(call.id), []).append(call)
        if by_id.keys() != {call["id"] for call in echoed} or len(by_id) != len(echoed):
            continue
        if all(any(_same_call(call, echo["function"]) for call in by_id[echo["id"]]) for echo in echoed):
            return {identity: calls[0].id for identity, calls in by_id.items()}
    return None


def _mistral_id(identity: str) -> str:
    return re.sub("[^a-zA-Z0-9]", "", identity)[:9].ljust(9, "0")


_ID_SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda identity: identity,
    lambda identity: re.sub("[^a-zA-Z0-9_-]", "_", identity),
    _mistral_id,
)
"""Ids come back as they were; with letters replaced when the model is named after Claude, cut to nine when after one
of Mistral's. Two that become one are not told apart."""


def _same_call(sampled: ToolCall, echo: Wire) -> bool:
    name, arguments = echo["name"], echo["arguments"]
    if name == sampled.name and arguments == sampled.arguments:
        return True
    try:
        given = javascript_json.parse(arguments)
    except ValueError:
        return False
    if name in (sampled.name, sampled.name.lower()):  # a tool is found whatever the case of its name
        try:
            if javascript_json.same(_as_input(sampled.arguments), given):
                return True
        except ValueError:
            pass
    # No such tool, no JSON, or a key `__proto__`: the call becomes one of `invalid`, with what is wrong.
    return name == _INVALID and _is_refusal(given, sampled.name)


def _as_input(arguments: str) -> Any:
    """What a tool gets for these arguments: nothing is {}, and what is no object is wrapped in one."""
    if not arguments.strip(javascript_json.JAVASCRIPT_SPACE):
        return {}
    value = javascript_json.parse(arguments)
    return value if isinstance(value, dict) else {"value": value}


def _is_refusal(given: object, name: str) -> bool:
    if not isinstance(given, dict) or given.keys() != {"tool", "error"}:
        return False
    return given["tool"] == name and isinstance(given["error"], str)
