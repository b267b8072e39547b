"""What must hold of a played conversation: one branch, every request extends the last, the tools saw what was meant."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from opencode_env.cli_agent.interception.answer_steps import sound_arguments
from opencode_env.scripted_model import Reply
from verifiers.v1.types import AssistantMessage, UserMessage

from tests.history.meaning import assert_results, lines_meant, lines_told
from tests.history.segments import Talk
from tests.support.rollouts import assert_extends
from tests.support.seats import MAIN_MODEL


def assert_one_branch(played: Talk) -> None:
    """One branch of what was sampled, which a strict provider takes at every turn."""
    trace = played.main
    assert trace.ok, trace.errors
    assert played.refused == [], played.refused[0].body["messages"]
    assert trace.info.get("history") is None
    assert "gateway" not in trace.info, trace.info["gateway"]
    assert (trace.num_branches, trace.metrics["history_forks"]) == (1, 0)
    assert_sampled(played.answers, played.said)
    assert all(call.error is None for call in (*trace.calls, *played.sub.calls))


def assert_conversations(played: Talk) -> None:
    """The same of every conversation of a rollout whose sub-agents have different prompts, and of its tools."""
    assert_one_branch(played)
    assert played.main.metrics.get("sub_llm_history_forks", 0) == 0, played.sub.info
    assert_results(played.main.branches[0].messages, played.said)
    subs = [branch.messages for branch in played.sub.branches]
    assert len(subs) == len(played.words) - 1
    for messages in subs:
        (said,) = (said for word, said in played.words.items() if word and word in _prompt(messages))
        assert_sampled([one for one in messages if isinstance(one, AssistantMessage)], said)
        assert_results(messages, said)
    for requests in _conversations(played):
        assert_extends(requests)
    assert lines_told(played.told) == lines_meant(reply for said in played.words.values() for reply in said)


def assert_sampled(answers: Sequence[AssistantMessage], said: Sequence[Reply]) -> None:
    """The trace holds what the model said, character for character."""
    assert len(answers) == len(said)
    for message, reply in zip(answers, said, strict=True):
        assert (message.content or "", message.reasoning_content or "") == (reply.text, reply.reasoning)
        meant = [(call.name, sound_arguments(call.arguments_json)) for call in reply.tool_calls]
        assert [(call.name, call.arguments) for call in message.tool_calls or ()] == meant


def _prompt(messages: Any) -> str:
    return next(str(message.content) for message in messages if isinstance(message, UserMessage))


def _conversations(played: Talk) -> Iterator[Sequence[dict[str, Any]]]:
    """The bodies of the requests of each conversation."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for request in played.requests:
        prompts = (str(one["content"]) for one in request.body["messages"] if one["role"] == "user")
        found["" if request.body["model"] == MAIN_MODEL else next(prompts)].append(request.body)
    yield from found.values()
