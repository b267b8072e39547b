"""Ghosts: what an agent kept of an answer that reached it in part before the whole of it reached it again.

Sent back with the history, a ghost is an assistant message that the model never said there, and would fork the trace.
Invariant: a message that stands in a conversation no more often than the model said it is never taken for one.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage

from opencode_env.cli_agent.interception.echo_rules import EchoRules

Said = tuple[str, tuple[str, ...]]
"""What an assistant message is known by: its text and the ids of its calls, which agents leave as they are."""


def drop_ghosts(messages: Any, nodes: Sequence[MessageNode], rules: EchoRules | None = None) -> list[Said]:
    """Take the ghosts, and the results of their calls, out of a chat request's messages; returns what they said.

    A ghost comes before the message whose beginning it is, with nothing but results of its calls between them.

    Args:
        messages: of the request.
        nodes: of the trace.
        rules: of its agent, by which it rewrites what it sends back, ids included; None = it leaves all as it was.
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
    standing: dict[Said, list[Any]] = {said: [] for _, _, said in suspects}
    for at, said in answers:
        if said in standing:
            standing[said].append(messages[at])
    surplus = {said: _surplus(said, echoes, nodes, rules) for said, echoes in standing.items()}
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


def _surplus(said: Said, echoes: Sequence[Any], nodes: Sequence[MessageNode], rules: EchoRules | None) -> int:
    """How much more often the messages that say this stand in the request than the model said one of them."""
    sampled = [node.message for node in nodes if node.sampled and isinstance(node.message, AssistantMessage)]
    return len(echoes) - sum(_is_known(one, said, echoes, rules) for one in sampled)


def _is_known(one: AssistantMessage, said: Said, echoes: Sequence[Any], rules: EchoRules | None) -> bool:
    if (one.content or "", tuple(call.id for call in one.tool_calls or ())) == said:
        return True
    with suppress(AttributeError, KeyError, TypeError):  # a malformed message: refused when it is read
        return rules is not None and any(rules.recognise(one, echo) is not None for echo in echoes)
    return False
