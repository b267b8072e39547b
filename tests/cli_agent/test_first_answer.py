"""Before its model's first answer a policy has done nothing: whatever ends a rollout then is an error, in the words of
what ended it, and one that is not tried again by itself unless it may pass."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.classification import EndedRun, classify, is_context_overflow, require_scorable
from opencode_env.cli_agent.interception.gateway import GATEWAY_RECORD, LAST_REFUSED
from opencode_env.cli_agent.outcomes import NO_ANSWER, RunOutcome, all_outcomes, retries_of_outcomes
from opencode_env.cli_agent.rollout import PlayedBefore, rollout_of
from opencode_env.cli_agent.runaway import NOT_STARTED
from opencode_env.cli_agent.traces import AnyTrace, agent_record
from opencode_env.scripted_model import Reply, Usage
from rollout_sandbox.conformance.subject import until
from rollout_sandbox.outcomes import Outcome
from verifiers.v1.agent import TimeoutConfig
from verifiers.v1.configs.retries import RetryConfig
from verifiers.v1.errors import HarnessError, ProviderError, RolloutError
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Error, ModelCall
from verifiers.v1.types import AssistantMessage

from tests.cli_agent.light_agent import Asking, Doing, play_light
from tests.cli_agent.test_whose_doing import DONE, asks, ending, played
from tests.rubrics.conftest import trace_of
from tests.support.replies import bash, fault, faulty
from tests.support.waiting import within_a_limit

FULL = {
    "vLLM": (400, "This model's maximum context length is 4096 tokens. However, your request has 5003 input tokens."),
    "vLLM, of the answer": (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 "
        "tokens and your request has 6865 input tokens (32000 > 32768 - 6865).",
    ),
    "SGLang": (400, "The input (61709 tokens) is longer than the model's context length (40960 tokens)."),
    "SGLang, of both": (
        400,
        "Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total of "
        "202941 tokens: 170941 tokens from the input messages and 32000 tokens for the completion.",
    ),
    "SGLang, of its cache": (400, "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."),
    "llama.cpp": (400, "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"),
    "llama.cpp, earlier": (500, '{"code": 500, "message": "try again", "type": "exceed_context_size_error"}'),
    "llama.cpp, while it answers": (500, "Context size has been exceeded."),
    "llama-cpp-python": (400, "Requested tokens (2285) exceed context window of 2048"),
    "TGI": (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 8740 and 500"),
    "TGI, of the prompt": (422, "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168"),
    "LM Studio": (
        400,
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 13055>= "
        "n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input.",
    ),
    "LM Studio, earlier": (
        400,
        "Trying to keep the first 15857 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
    ),
    "Ollama": (400, "prompt too long; exceeded max context length by 17 tokens"),
    "Ollama, of the input": (400, "the input length exceeds the context length"),
    "Bedrock": (400, "ValidationException: Input is too long for requested model."),
    "OpenAI": (400, '{"error": {"message": "too long", "code": "context_length_exceeded"}}'),
    "OpenAI, of the window": (400, "Your input exceeds the context window of this model."),
    "Anthropic": (400, "prompt is too long: 209353 tokens > 199999 maximum"),
    "Anthropic, of both": (
        400,
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length",
    ),
    "a proxy": (413, "<h1>413 Request Entity Too Large</h1>"),
}
"""Status and words with which endpoints say that the window is full, from public reports."""


@pytest.mark.parametrize("engine", FULL)
def test_the_words_of_every_engine_for_a_full_window_are_known(engine: str) -> None:
    status, text = FULL[engine]
    assert is_context_overflow(Error(type="ProviderError", message=f"upstream {status}: {text}", status_code=status))


def test_a_refused_parameter_a_limit_of_the_rate_and_an_answer_limit_of_the_model_are_no_full_window() -> None:
    for status, text in (
        (400, "max_tokens is too large: 32000. This model supports at most 16384 completion tokens"),
        (429, "Request too large: Limit 30000 tokens per min, Requested 31000"),
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"),
        (503, "This model's maximum context length is 4096 tokens."),
    ):
        assert not is_context_overflow(Error(type="ProviderError", message=text, status_code=status)), text


def assert_no_answer(trace: AnyTrace, kind: str, *words: str) -> None:
    assert ending(trace) == kind, trace.errors
    assert trace.last_error is not None
    message = trace.last_error.message
    assert message.startswith(NO_ANSWER), message
    assert [word for word in words if word not in message] == []
    (rule,) = (
        rule for rule in retries_of_outcomes(RetryConfig(max_retries=4), all_outcomes()).rules if rule.type == kind
    )
    assert rule.max_retries == 0
    assert rule.message is not None
    assert re.search(rule.message, message)
    assert trace.metrics["context_overflow"] == 0.0


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("engine", ["vLLM, of the answer", "SGLang", "llama.cpp, while it answers", "TGI"])
async def test_a_window_that_the_first_prompt_fills_is_an_error_and_later_a_stop(engine: str) -> None:
    status, text = FULL[engine]
    full = faulty("status", status=status, body=text)
    assert_no_answer(await played(asks(1), full), "ProviderError", text, "--sampling.max-tokens", "larger window")
    later = await played(asks(2), bash("ls"), full)
    assert (ending(later), later.stop_condition) == ("scored", "max_total_tokens")
    assert (later.metrics["context_overflow"], later.metrics["agent_error"]) == (1.0, 0.0)


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_refused_first_request_is_an_error_that_quotes_the_endpoint(status: int, code: int) -> None:
    refused = faulty("status", status=status, body="no such parameter")
    assert_no_answer(await played(asks(1, code), refused), "ProviderError", f"{status}: no such parameter")


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("status", [401, 429, 500])
async def test_what_may_pass_and_a_refused_key_stay_errors_that_retries_hold_for(status: int) -> None:
    trace = await played(asks(1), faulty("status", status=status))
    assert ending(trace) == "ProviderError"
    assert trace.last_error is not None
    assert not trace.last_error.message.startswith(NO_ANSWER)


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("says", [bash("ls"), DONE], ids=["a call", "a text"])
@pytest.mark.parametrize("limit", ["max_input_tokens", "max_total_tokens"])
async def test_a_budget_below_the_first_prompt_is_an_error_whatever_the_policy_answers(limit: str, says: Reply) -> None:
    spends = says.model_copy(update={"usage": Usage(prompt_tokens=900, completion_tokens=9)})
    option = f"--env.agent.{limit.replace('_', '-')} 900"
    used_up: dict[str, Any] = {limit: 900}
    sufficient: dict[str, Any] = {limit: 901}
    assert_no_answer(await play_light(asks(2), spends, **used_up), "HarnessError", option, "900 tokens")
    assert ending(await play_light(asks(2, code=0), spends, **sufficient)) == "scored"


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("text", ["I c", ""])
async def test_an_answer_that_the_endpoint_filters_is_an_answer(text: str) -> None:
    trace = await played(asks(1, code=0), Reply(text=text, finish_reason="content_filter"))
    assert (ending(trace), trace.num_turns) == ("scored", 1)


async def limited(doing: Doing, reply: Reply) -> AnyTrace:
    """A rollout whose time is over while its agent waits."""

    async def play(seconds: float) -> AnyTrace:
        return await play_light(doing, reply, timeout=TimeoutConfig(rollout=seconds))

    return await within_a_limit(play, lambda trace: rollout_of(trace).program.called.is_set())


async def asks_unstreamed(asking: Asking) -> int:
    asking.streams = False
    return await asking.ask()


async def asks_nothing(asking: Asking) -> int:
    await until(lambda: False, seconds=3600)
    return 0


@pytest.mark.usefixtures("sandboxes")
async def test_a_time_limit_is_the_policys_once_something_of_a_first_answer_came_or_where_none_is_streamed() -> None:
    silent = await limited(asks(1), faulty("hang"))
    assert ending(silent) == "ProviderError"
    assert silent.last_error is not None
    assert "sent nothing of its first answer" in silent.last_error.message
    speaking = await limited(asks(1), Reply(text="I think that", faults=fault("hang", after=4)))
    assert (ending(speaking), speaking.stop_condition, speaking.num_turns) == ("scored", "agent_timeout", 0)
    unstreamed = await limited(asks_unstreamed, faulty("hang"))
    assert (ending(unstreamed), unstreamed.stop_condition) == ("scored", "agent_timeout")


@pytest.mark.usefixtures("sandboxes")
async def test_an_agent_that_never_asked_within_its_time_is_an_error() -> None:
    trace = await play_light(asks_nothing, DONE, timeout=TimeoutConfig(rollout=1.0))
    assert ending(trace) == "HarnessError"
    assert trace.last_error is not None
    assert "before its first model call" in trace.last_error.message


def _overflow(trace: AnyTrace) -> None:
    trace.calls.append(ModelCall(error=Error(type="ProviderError", message=FULL["vLLM"][1], status_code=400)))


def _refused_by_a_bound(trace: AnyTrace) -> None:
    _answerless(trace)
    trace.info[GATEWAY_RECORD] = {LAST_REFUSED: "the request is larger than 100 bytes"}


def _answerless(trace: AnyTrace) -> None:
    trace.calls.append(ModelCall(error=Error(type="ProviderError", message="x", status_code=400)))


def _stopped(stop: str) -> Callable[[AnyTrace], None]:
    return lambda trace: trace.stop(stop)


def _time_over(trace: AnyTrace) -> None:
    agent_record(trace)[NOT_STARTED] = True


SCORED_WITHOUT_AN_ANSWER = {
    RunOutcome.COMPLETED: (_answerless, ProviderError),
    RunOutcome.LIMIT: (_stopped("max_turns"), HarnessError),
    RunOutcome.CONTEXT_FULL: (_overflow, ProviderError),
    RunOutcome.CONTENT_FILTER: (_stopped("content_filter"), HarnessError),
    RunOutcome.REQUEST_REFUSED: (_refused_by_a_bound, ProviderError),
    RunOutcome.AGENT_BROKE: (_answerless, ProviderError),
    RunOutcome.AGENT_TIMEOUT: (_time_over, HarnessError),
}
"""What makes each scored outcome of an agent's run, without an answer, and the error that it is then. `OUTLIVED` and
`SCORING_OVERRUN` need a program that a model has started."""


@pytest.mark.parametrize("outcome", SCORED_WITHOUT_AN_ANSWER, ids=lambda outcome: outcome.name)
async def test_no_scored_row_of_the_table_can_be_had_without_an_answer(outcome: Outcome) -> None:
    make, kind = SCORED_WITHOUT_AN_ANSWER[outcome]
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    make(trace)
    run = EndedRun(rollout_of(trace), trace, problem=HarnessError("exited 1"))
    with pytest.raises(kind):
        await classify(run)
    if outcome is RunOutcome.AGENT_TIMEOUT:
        trace.stop(outcome.stop)
        with pytest.raises(HarnessError):
            require_scorable(trace)


def test_every_scored_row_is_decided_here() -> None:
    scored = {outcome for outcome in all_outcomes() if outcome.scored}
    of_scoring = {RunOutcome.OUTLIVED, RunOutcome.SCORING_OVERRUN, RunOutcome.UNREADABLE}
    assert scored - SCORED_WITHOUT_AN_ANSWER.keys() == of_scoring


async def test_what_was_answered_before_does_not_count_and_what_a_resumed_rollout_did_does() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    trace.nodes.append(MessageNode(message=AssistantMessage(content="earlier"), sampled=True))
    _overflow(trace)
    rollout = rollout_of(trace)
    rollout.before = PlayedBefore(Path(), "", 0.0, nodes=1, calls=0, resumed=False)
    with pytest.raises(RolloutError, match=NO_ANSWER):
        await classify(EndedRun(rollout, trace))
    rollout.before = replace(rollout.before, resumed=True)
    await classify(EndedRun(rollout, trace))
    assert trace.stop_condition == "max_total_tokens"
