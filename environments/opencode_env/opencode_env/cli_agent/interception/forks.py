"""Counts a trace's forks: the branches beyond one for each conversation, and why there are any.

Invariant: a conversation that only grows has none. What calls without a conversation of their own are (those of the
agent's programs) are conversations of one call each.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Trace
from verifiers.v1.types import AssistantMessage, Message, ToolMessage

from opencode_env.cli_agent.traces import lineage

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

RECORD = "history"
"""Key in a trace's `info` with the number of forks and the first of them; absent when there are none."""

_SHOWN = 10
_BEFORE, _BEHIND = 20, 60
"""Characters that are shown around a difference."""


def history_forks(trace: Trace[Any, Any, Any]) -> float:
    return float(trace.info.get(RECORD, {}).get("forks", 0))


class Forks:
    """Notices the forks of one trace as its answers are committed."""

    def __init__(self, trace: Trace[Any, Any, Any]) -> None:
        self._trace = trace
        self._leaves: dict[str, list[int]] = {}
        """The last answers of each conversation's branches, the newest last."""

    def committed(self, node: int, conversation: str | None) -> None:
        """Take up an answer of a conversation."""
        if conversation is None:
            return
        leaves = self._leaves.setdefault(conversation, [])
        before = lineage(self._trace.nodes, self._trace.nodes[node].parent) if leaves else ()
        extended = next((here for here in before if here in leaves), None)
        if extended is not None:
            leaves.remove(extended)
        elif leaves:
            self._note(conversation, leaves[-1], node)
        leaves.append(node)

    def last(self, conversation: str) -> int | None:
        """The node of the newest answer of a conversation."""
        leaves = self._leaves.get(conversation)
        return leaves[-1] if leaves else None

    def _note(self, conversation: str, old: int, new: int) -> None:
        record = self._trace.info.setdefault(RECORD, {"forks": 0, "first": []})
        record["forks"] += 1
        if len(record["first"]) >= _SHOWN:
            return
        nodes = self._trace.nodes
        found = first_difference(nodes, *([*lineage(nodes, end)][::-1] for end in (old, new)))
        record["first"].append({"conversation": conversation, **found})
        told = "the history of a conversation changed: id=%s conversation=%s message %s from turn %s on: %s"
        logger.warning(told, self._trace.id, conversation, found["message"], found["turn"], found["how"])


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
    if isinstance(was, ToolMessage) and isinstance(now, ToolMessage) and was.tool_call_id != now.tool_call_id:
        return f"the result belongs to call {now.tool_call_id!r}, not to {was.tool_call_id!r}"
    parts = zip(_parts(was).items(), _parts(now).values(), strict=True)
    different = (f"{name}: {_texts(old, new)}" for (name, old), new in parts if old != new)
    return next(different, "the same text was given other tokens")


def _parts(message: Message) -> dict[str, str]:
    """What a message says, by field."""
    if not isinstance(message, AssistantMessage):
        return {"content": message.content if isinstance(message.content, str) else repr(message.content)}
    texts = {"content": message.content or "", "reasoning_content": message.reasoning_content or ""}
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls or []]
    return {**texts, "tool_calls": json.dumps(calls)}


def _texts(old: str, new: str) -> str:
    """Both texts around the first place where they differ."""
    start = max(0, _shared(old, new) - _BEFORE)
    shown = [repr(text[start : start + _BEFORE + _BEHIND]) for text in (old, new)]
    return f"{shown[1]} stands where {shown[0]} stood (from character {start})"
