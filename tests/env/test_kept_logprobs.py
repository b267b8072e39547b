"""Logprobs of an evaluation endpoint: kept when the seat's sampling asks, one for each token, beside their answer."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent.interception import GatewayConfig, answer_steps
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Reply, ScriptPolicy
from verifiers.v1 import SamplingConfig
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.types import AssistantMessage

from tests.gateway.calls import call_of
from tests.rlm import episodes
from tests.rlm.role_server import Rollout, role_server
from tests.support.light_opencode import light_opencode_in_place
from tests.support.places import Confined
from tests.support.replies import bash, fault
from tests.support.rollouts import play

ASKS = {"sampling": {"logprobs": True}}
SCRIPT = [
    bash("echo one", reasoning="Let me look at it first."),
    Reply(text="On and on. ", tool_calls=(*bash("echo two").tool_calls, *bash("echo three").tool_calls)),
    Reply(
        text="And now, äöü and 😀: it is done.", reasoning="I think that was it.", faults=fault("no_finish", attempts=1)
    ),
]


@pytest.fixture(scope="module")
def light_opencode(sandboxes: None) -> Iterator[None]:
    """One that sends a broken call again, as OpenCode does."""
    with light_opencode_in_place(sends=2):
        yield


def said(message: AssistantMessage) -> str:
    """Everything that was sampled, in the order in which the scripted model says it."""
    arguments = [call.arguments for call in message.tool_calls or ()]
    return "".join([message.reasoning_content or "", message.content or "", *arguments])


def assert_aligned(trace: AnyTrace) -> None:
    """Each answer of the trace has its tokens, as many as its usage counts, and their logprobs."""
    calls = [call for call in trace.calls if call.node is not None]
    kept: list[dict[str, Any]] = trace.info[answer_steps.LOGPROBS_RECORD]
    assert [entry["node"] for entry in kept] == [call.node for call in calls]
    for call, entry in zip(calls, kept, strict=True):
        message = trace.nodes[entry["node"]].message
        assert isinstance(message, AssistantMessage)
        assert "".join(entry["tokens"]) == said(message)
        assert call.usage is not None
        assert len(entry["tokens"]) == entry["completion_tokens"] == call.usage.completion_tokens
        assert entry["logprobs"] == [-(n % 8 + 1) / 8 for n in range(1, len(entry["tokens"]) + 1)]


@pytest.mark.usefixtures("light_opencode")
@pytest.mark.parametrize("characters", [3, 10_000])
async def test_streamed_answers_with_reasoning_and_calls_are_aligned_however_they_are_cut(characters: int) -> None:
    async with role_interception(InterceptionServerConfig()) as server:
        pieces = {"chunk_characters": characters}
        played = await play(Confined(), SCRIPT, settings=ASKS, server=pieces, interception=server)
    assert played.trace.ok, played.trace.errors
    assert [call.error is None for call in played.trace.calls] == [True, True, False, True]
    assert_aligned(played.trace)
    assert all(request.body["logprobs"] is True for request in played.requests)


@pytest.mark.usefixtures("light_opencode")
async def test_main_and_sub_keep_their_own_when_both_seats_ask(tmp_path: Path) -> None:
    sub = ScriptPolicy.of(bash("echo deep"), Reply(text="Found it."))
    options = {"agent": ASKS, "sub": ASKS}
    played = await episodes.play(tmp_path, [episodes.task("look there"), Reply(text="Done.")], sub, options=options)
    assert played.problems == []
    for trace in (played.main, played.sub):
        assert_aligned(trace)
    assert played.main.metrics["spelled_calls"] == played.main.metrics["sub_llm_spelled_calls"] == 0


@pytest.mark.usefixtures("light_opencode")
async def test_a_seat_that_does_not_ask_keeps_nothing_also_where_the_other_does(tmp_path: Path) -> None:
    sub = ScriptPolicy.of(Reply(text="Found it."))
    steps = [episodes.task("look there"), Reply(text="Done.")]
    played = await episodes.play(tmp_path, steps, sub, options={"sub": ASKS})
    assert answer_steps.LOGPROBS_RECORD not in played.main.info
    assert "spelled_calls" not in played.main.metrics
    assert_aligned(played.sub)


def asking(rollout: Rollout) -> Rollout:
    """Let both seats' sampling ask."""
    for session in (rollout.session, rollout.side.session):
        session.ctx = replace(session.ctx, sampling=SamplingConfig.model_validate(ASKS["sampling"]))
    return rollout


@pytest.mark.parametrize("stream", [False, True])
async def test_the_agent_is_not_told_them(stream: bool) -> None:
    async with role_server() as server, server.rollout() as rollout:
        answers = [
            await asking(rollout).ask("a question", stream=stream),
            await rollout.sub_ask("another", stream=stream),
        ]
    for answer, trace in zip(answers, (rollout.main, rollout.sub), strict=True):
        assert answer.status == 200
        assert '"logprob"' not in answer.body
        assert_aligned(trace)


@pytest.mark.parametrize("filtered", [True, False])
async def test_what_a_program_of_the_agent_asks_for_is_its_own(filtered: bool) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "a question"}], "logprobs": True}
    async with role_server(gateway=GatewayConfig(filter_requests=filtered)) as server, server.rollout() as rollout:
        answer = await rollout.post(json.dumps(body))
    assert answer.status == 200
    assert ('"logprob"' in answer.body) is not filtered
    assert rollout.main.num_turns == 1
    assert answer_steps.LOGPROBS_RECORD not in rollout.main.info


@pytest.mark.parametrize(
    "reported",
    [None, {}, {"content": None}, {"content": [{"token": "a"}]}, {"content": "no list"}, {"content": [None]}, 7],
)
async def test_what_an_endpoint_reports_otherwise_is_none(reported: Any) -> None:
    async with role_server() as server, server.rollout() as rollout:
        await rollout.ask("a question")
    call = call_of(asking(rollout).session)
    call.record = rollout.main.calls[0]
    answer_steps.collect_logprobs(call, {"choices": [{"logprobs": reported}]})
    answer_steps.keep_logprobs(call)
    assert answer_steps.LOGPROBS_RECORD not in rollout.main.info


@pytest.mark.parametrize(("usage", "sampled"), [({"completion_tokens": 3}, 3), (None, None)])
async def test_an_entry_says_how_many_tokens_were_sampled_where_a_stream_left_some_out(
    usage: dict[str, int] | None, sampled: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with role_server() as server, server.rollout() as rollout:
        await rollout.ask("a question")
    call = call_of(asking(rollout).session)
    record = rollout.main.calls[0]
    assert record.usage is not None
    call.record = record.model_copy(update={"usage": usage and record.usage.model_copy(update=usage)})
    answer_steps.collect_logprobs(call, {"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}]})
    for _ in range(2):  # an endpoint is warned of once
        answer_steps.keep_logprobs(call)
    assert [entry["completion_tokens"] for entry in rollout.main.info[answer_steps.LOGPROBS_RECORD]] == [sampled] * 2
    told = [one.getMessage() for one in caplog.records if "logprobs of" in one.getMessage()]
    assert [("1 of" in one, "3 tokens" in one, "ask-streamed" in one) for one in told] == [(True,) * 3] * bool(sampled)
