"""Where and how two histories of one conversation part, in words for people."""

import json
from collections.abc import Sequence
from typing import Any

from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, ToolMessage

_BEFORE, _BEHIND = 20, 60


def first_difference(nodes: Sequence[MessageNode], old: Sequence[int], new: Sequence[int]) -> dict[str, Any]:
    """What makes the second of two paths a branch: number of the message, of the turn whose request held it first
    (both from 1), its role, and how it differs."""
    shared = _shared(old, new)
    before = nodes[old[shared]] if shared < len(old) else None
    after = nodes[new[shared]] if shared < len(new) else None
    turn = 1 + sum(nodes[node].sampled for node in new[:shared])
    role = after.message.role if after is not None else None
    return {"message": shared + 1, "turn": turn, "role": role, "how": _how(before, after)}


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many entries, from the first on, are the same."""
    same = (position for position, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(same, min(len(one), len(other)))


def _how(before: MessageNode | None, after: MessageNode | None) -> str:
    if before is None or after is None:
        return "the conversation ends here"
    if before.sampled and after.sampled:
        return "the same request was answered again"
    was, now = before.message, after.message
    if was.role != now.role:
        return f"a message of role {now.role} stands where one of role {was.role} stood"
    if before.parent is None and before.tools != after.tools:
        return "other tools are offered"
    if isinstance(was, AssistantMessage) and isinstance(now, AssistantMessage):
        return _answers(was, now)
    if isinstance(was, ToolMessage) and isinstance(now, ToolMessage) and was.tool_call_id != now.tool_call_id:
        return f"the result belongs to call {now.tool_call_id!r}, not to {was.tool_call_id!r}"
    if was.content == now.content:
        return "the same text was given other tokens"
    return f"content: {_texts(_text(was.content), _text(now.content))}"


def _answers(was: AssistantMessage, now: AssistantMessage) -> str:
    for name in ("content", "reasoning_content"):
        old, new = getattr(was, name) or "", getattr(now, name) or ""
        if old != new:
            return f"{name}: {_texts(old, new)}"
    calls = [json.dumps([_call(call) for call in message.tool_calls or []]) for message in (was, now)]
    if calls[0] != calls[1]:
        return f"tool_calls: {_texts(*calls)}"
    return "the same text was given other tokens"


def _call(call: Any) -> list[str]:
    return [call.id, call.name, call.arguments]


def _text(content: object) -> str:
    return content if isinstance(content, str) else repr(content)


def _texts(old: str, new: str) -> str:
    """Both texts around the first place where they differ."""
    start = max(0, _shared(old, new) - _BEFORE)
    shown = [repr(text[start : start + _BEFORE + _BEHIND]) for text in (old, new)]
    return f"{shown[1]} stands where {shown[0]} stood (from character {start})"
