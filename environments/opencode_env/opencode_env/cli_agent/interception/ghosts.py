"""Ghosts: what an agent kept of an answer that reached it in part before the whole of it reached it again.

Sent back with the history, a ghost is an assistant message that the model never said there, and would fork the trace.
Invariant: only a beginning of an answer that was asked for more than once, where it was sampled and in the conversation
that it was sampled in, is taken for one; and never what stands there no more often than the model said it.
"""

from collections.abc import Callable, Sequence
from typing import Any

Said = tuple[str, tuple[str, ...]]
"""What an assistant message is known by: its text and the ids of its calls, which agents leave as they are."""


def said(message: dict[str, Any]) -> Said:
    """What an assistant message of a request is known by."""
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    ids = [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return (content if isinstance(content, str) else "", tuple(ids))


def halves_before(
    messages: Sequence[dict[str, Any]], first: int, is_whole: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """The messages from `first` on that come before a whole answer, each a beginning of it or a result of its calls;
    none when there is no such answer.

    Args:
        messages: of the request.
        first: position of an assistant message.
        is_whole: whether a message is the echo of the whole answer.
    """
    halves: list[Said] = []
    for position in range(first, len(messages)):
        message = messages[position]
        if message.get("role") == "assistant":
            own = said(message)
            if halves and all(_begins(half, own) for half in halves) and is_whole(message):
                return list(messages[first:position])
            halves.append(own)
        elif message.get("role") != "tool" or not any(message.get("tool_call_id") in ids for _, ids in halves):
            break
    return []


def _begins(half: Said, whole: Said) -> bool:
    (text, ids), (whole_text, whole_ids) = half, whole
    return whole_text.startswith(text) and whole_ids[: len(ids)] == ids
