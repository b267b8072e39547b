"""What counts as evidence that the endpoint ended a run, case by case."""

import time
from collections.abc import Sequence

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.classification import Evidence, endpoint_failure, require_scorable
from opencode_env.cli_agent.interception.callers import PROGRAM_CALLS, RECORDED_PROGRAM_CALLS
from opencode_env.cli_agent.rollout import Patience
from opencode_env.cli_agent.traces import AnyTrace, agent_record
from verifiers.v1.errors import InterceptionError, ProviderError
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Error, ModelCall, TimeSpan
from verifiers.v1.types import AssistantMessage, ToolCall

from tests.rubrics.conftest import trace_of

PATIENCE = Patience(sends=3, seconds=100.0)
ANSWERED = ModelCall(node=1, finish_reason="stop")
NOW = 1_000_000.0


def failed(status: int | None = 500, message: str = "no", kind: str = "ProviderError", at: float = NOW) -> ModelCall:
    error = Error(type=kind, message=message, status_code=status)
    return ModelCall(error=error, time=TimeSpan(start=at, end=at))


def at(moment: float) -> ModelCall:
    return ModelCall(node=1, time=TimeSpan(start=moment, end=moment))


@pytest.mark.parametrize("status", [None, 408, 429, 500, 502, 503, 504, 524, 529])
def test_a_failure_that_may_pass_is_evidence_once_the_program_has_sent_the_call_as_often_as_it_does(
    status: int | None,
) -> None:
    assert endpoint_failure(Evidence([ANSWERED, *[failed(status)] * 2], patience=PATIENCE)) is None
    found = endpoint_failure(Evidence([ANSWERED, *[failed(status)] * 3], patience=PATIENCE))
    assert isinstance(found, ProviderError)
    assert found.status_code == (status or 502)


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refused_key_is_evidence_at_once(status: int) -> None:
    assert isinstance(endpoint_failure(Evidence([ANSWERED, failed(status)], patience=PATIENCE)), ProviderError)


@pytest.mark.parametrize(
    "call",
    [
        *(failed(status) for status in (400, 404, 405, 409, 413, 415, 422, 451)),
        failed(500, "maximum context length is 4096 tokens", "KeyError"),
        failed(None, "maximum recursion depth exceeded", "RecursionError"),
        failed(None, "", "CancelledError"),
        failed(500, "a hook", "TaskError"),
    ],
)
def test_what_depends_on_the_conversation_is_none_however_often_it_is_sent(call: ModelCall) -> None:
    assert endpoint_failure(Evidence([ANSWERED, *[call] * 40], patience=PATIENCE)) is None


@pytest.mark.parametrize("status", [401, 403, 404, 405, 409, 415, 451])
def test_what_no_text_brings_about_is_evidence_at_once_at_a_seat_of_summaries(status: int) -> None:
    calls = [failed(status), ANSWERED, failed(status)]
    assert isinstance(endpoint_failure(Evidence(calls, elsewhere=[False, False, True])), ProviderError)
    own = endpoint_failure(Evidence(calls, elsewhere=[True, False, False]))
    assert (own is not None) is (status in (401, 403))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_a_text_may_bring_about_is_no_evidence_at_a_seat_of_summaries(status: int) -> None:
    assert endpoint_failure(Evidence([ANSWERED, failed(status)], elsewhere=[False, True])) is None


def test_only_the_end_of_a_run_counts() -> None:
    assert endpoint_failure(Evidence([*[failed()] * 9, ANSWERED], patience=PATIENCE)) is None
    assert endpoint_failure(Evidence([*[failed()] * 9, failed(400)], patience=PATIENCE)) is None
    assert endpoint_failure(Evidence([failed(), failed(), ANSWERED, failed()], patience=PATIENCE)) is None
    assert endpoint_failure(Evidence([], patience=PATIENCE)) is None


def test_the_way_to_the_endpoint_keeps_its_type() -> None:
    lost = failed(None, "connection reset", "InterceptionError")
    assert type(endpoint_failure(Evidence([lost] * 3, patience=PATIENCE))) is InterceptionError


def test_a_silent_endpoint_is_evidence_when_the_program_has_waited_as_long_as_it_does() -> None:
    assert endpoint_failure(Evidence([ANSWERED], patience=PATIENCE, under_way=99.0)) is None
    found = endpoint_failure(Evidence([ANSWERED], patience=PATIENCE, under_way=100.0))
    assert isinstance(found, ProviderError)
    assert found.status_code == 504


def test_programs_that_flood_the_endpoint_are_to_blame_for_what_it_does_then() -> None:
    calls = [failed(429)] * 3
    flood = [at(NOW - 30)] * 20
    assert endpoint_failure(Evidence(calls, programs=flood, patience=PATIENCE)) is None
    assert endpoint_failure(Evidence(calls, programs=flood[1:], patience=PATIENCE)) is not None
    assert endpoint_failure(Evidence(calls, programs=[at(NOW - 300)] * 50, patience=PATIENCE)) is not None
    unrecorded = [at(NOW - 3000)] * RECORDED_PROGRAM_CALLS
    assert endpoint_failure(Evidence(calls, programs=unrecorded, patience=PATIENCE)) is None


def test_time_that_is_over_while_the_endpoint_wants_to_be_left_alone_is_the_endpoints() -> None:
    def found(waits: Sequence[float], over: float, programs: Sequence[ModelCall] = ()) -> bool:
        evidence = Evidence([ANSWERED, failed(429)], programs, PATIENCE, time_over=NOW + over, waits=waits)
        return endpoint_failure(evidence) is not None

    assert found([0.0, 600.0], 590)
    assert not found([0.0, 600.0], 601)
    assert not found([0.0, 0.0], 61)
    # Programs that asked for so much within as long a time as the endpoint limits them for may have caused that.
    assert not found([0.0, 600.0], 590, [at(NOW - 590)] * 20)
    assert found([0.0, 600.0], 590, [at(NOW - 601)] * 20)
    assert found([0.0, 0.0], 50, [at(NOW - 590)] * 20)


def timed_out(*calls: ModelCall, hands: bool = True) -> AnyTrace:
    """The trace of an agent whose time was over."""
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    tools = [ToolCall(id="", name="bash", arguments="{}")] if hands else None
    trace.nodes = [MessageNode(message=AssistantMessage(content="", tool_calls=tools), sampled=hands)]
    trace.calls = list(calls)
    trace.stop("agent_timeout")
    trace.timing.agent.end = NOW + 20
    return trace


def test_a_time_limit_in_a_rest_before_a_retry_is_the_endpoints_and_a_longer_silence_is_not() -> None:
    with pytest.raises(ProviderError):
        require_scorable(timed_out(ANSWERED, failed()))
    require_scorable(timed_out(ANSWERED, failed(at=NOW - 100)))
    require_scorable(timed_out(failed(), ANSWERED))
    require_scorable(timed_out(ANSWERED, failed(400)))
    with pytest.raises(ProviderError):
        require_scorable(timed_out(failed(400), hands=False))


def test_a_programs_failed_calls_are_not_taken_for_the_agents() -> None:
    trace = timed_out(ANSWERED, failed(at=time.time()))
    agent_record(trace)[PROGRAM_CALLS] = [1]
    require_scorable(trace)
