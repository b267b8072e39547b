"""Ghosts: what an agent kept of an answer that reached it in part before the whole of it reached it again.

Sent back with the history, a ghost is an assistant message that the model never said there, and would fork the trace.
Invariant: a message that stands in a conversation no more often than the model said it is never taken for one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage

Said = tuple[str, tuple[str, ...]]
"""What an assistant message is known by: its text and the ids of its calls, which agents leave as they are."""


def drop_ghosts(messages: Any, nodes: Iterable[MessageNode]) -> list[Said]:
    """Take the ghosts, and the results of their calls, out of a chat request's messages; returns what they said.

    A ghost comes before the message whose beginning it is, with nothing but results of its calls between them.
    """
    if not isinstance(messages, list):
        return []
    answers = [(at, _said(message)) for at, message in enumerate(messages) if message.get("role") == "assistant"]
    suspects = [
        (at, later, said)
        for (at, said), (later, whole) in pairwise(answers)
        if _begins(said, whole) and _only_results(messages[at + 1 : later])
    ]
    if not suspects:
        return []
    surplus = Counter(said for _, said in answers)
    surplus.subtract(_sampled(nodes))
    ghosts: list[Said] = []
    for at, later, said in reversed(suspects):
        if surplus[said] > 0:
            surplus[said] -= 1
            ghosts.append(said)
            del messages[at:later]
    return ghosts


def _said(message: dict[str, Any]) -> Said:
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    ids = [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return (content if isinstance(content, str) else "", tuple(ids))


def _begins(said: Said, whole: Said) -> bool:
    (text, ids), (whole_text, whole_ids) = said, whole
    return whole_text.startswith(text) and whole_ids[: len(ids)] == ids


def _only_results(messages: Sequence[dict[str, Any]]) -> bool:
    return all(message.get("role") == "tool" for message in messages)


def _sampled(nodes: Iterable[MessageNode]) -> Iterable[Said]:
    for node in nodes:
        if node.sampled and isinstance(node.message, AssistantMessage):
            content = node.message.content
            ids = tuple(call.id for call in node.message.tool_calls or ())
            yield (content if isinstance(content, str) else "", ids)
