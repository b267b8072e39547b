"""What the recorded model calls say about a run of any agent: a full window, an agent that runs away."""

from opencode_env.cli_agent.classification import is_context_overflow
from opencode_env.cli_agent.runaway import RUNAWAY_FAILURES, RUNAWAY_TURNS, is_runaway
from verifiers.v1.trace import Error, ModelCall

ANSWERED = ModelCall(node=3, finish_reason="stop")
FILTERED = ModelCall(node=3, finish_reason=None)
WINDOW = "This model's maximum context length is 4096 tokens. However, your request has 5003 input tokens."


def failed() -> ModelCall:
    return ModelCall(error=Error(type="ProviderError", message="no", status_code=500))


def test_only_a_refused_request_can_be_an_overflow() -> None:
    for status in (None, 401, 429, 500, 502):
        assert not is_context_overflow(Error(type="ProviderError", message=WINDOW, status_code=status))
    assert not is_context_overflow(Error(type="ProviderError", message="bad request", status_code=400))


def test_endless_turns_of_one_conversation_without_a_tool_call_are_a_runaway() -> None:
    unfinished = [FILTERED] * RUNAWAY_TURNS
    assert is_runaway(unfinished, [1] * RUNAWAY_TURNS)
    assert is_runaway(unfinished, [None, *[1] * RUNAWAY_TURNS])
    assert not is_runaway(unfinished[1:], [1] * (RUNAWAY_TURNS - 1))
    assert not is_runaway(unfinished, [None] * RUNAWAY_TURNS)
    assert not is_runaway(unfinished, [1] * (RUNAWAY_TURNS - 1) + [None])


def test_many_sub_agents_that_answer_at_once_are_no_runaway() -> None:
    assert not is_runaway([ANSWERED] * RUNAWAY_TURNS, list(range(RUNAWAY_TURNS)))


def test_endless_failures_are_a_runaway_and_retries_are_not() -> None:
    assert not is_runaway([failed()] * (RUNAWAY_FAILURES - 1), [])
    assert is_runaway([failed()] * RUNAWAY_FAILURES, [])
    assert not is_runaway([*[failed()] * RUNAWAY_FAILURES, ANSWERED], [1])
