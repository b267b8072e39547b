"""The line between the policy's doing and a failure of the infrastructure, case by case."""

from dataclasses import replace
from typing import Any

import pytest
from opencode_env.agents.opencode.harness import AgentOutcome, ErrorEvent, RunLog, SegmentRecord, outcome_of
from verifiers.v1.errors import HarnessError, InterceptionError, ProviderError, RolloutError
from verifiers.v1.trace import Error, ModelCall
from verifiers.v1.types import FinishReason

ANSWERED = ModelCall(node=3, finish_reason="stop")
FILTERED = ModelCall(node=3, finish_reason=None)
FINISHES: tuple[FinishReason, ...] = ("stop", "length", "tool_calls")
WINDOW = "This model's maximum context length is 4096 tokens. However, your request has 5003 input tokens."


def failed(status: int | None = 500, message: str = "no", kind: str = "ProviderError") -> ModelCall:
    return ModelCall(error=Error(type=kind, message=message, status_code=status))


def ended(finish: FinishReason) -> ModelCall:
    return ModelCall(node=3, finish_reason=finish)


def segment(*calls: ModelCall, code: int = 0, stop: str | None = None, error: str = "", **log: Any) -> SegmentRecord:
    event = ErrorEvent("APIError", error) if error else None
    return SegmentRecord(code, calls, stop, RunLog(error=event, **log))


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        (segment(ANSWERED), AgentOutcome.COMPLETED),
        (segment(failed(), ANSWERED), AgentOutcome.COMPLETED),
        (segment(ANSWERED, failed(400, WINDOW), code=1, error="too long"), AgentOutcome.CONTEXT_WINDOW),
        (segment(ANSWERED, failed(413, "request: context_length_exceeded"), code=1), AgentOutcome.CONTEXT_WINDOW),
        (segment(FILTERED, code=1, error="blocked"), AgentOutcome.CONTENT_FILTER),
        *((segment(failed(400, WINDOW), ended(reason), code=1), AgentOutcome.COMPLETED) for reason in FINISHES),
        (segment(failed(400, WINDOW), FILTERED, code=1), AgentOutcome.CONTENT_FILTER),
        (segment(ANSWERED, code=1, error="rollout stopped", stop="max_turns"), AgentOutcome.STOPPED),
        (segment(code=1, stop="max_turns"), AgentOutcome.STOPPED),
        (segment(ANSWERED, code=-9, stop="agent_timeout"), AgentOutcome.STOPPED),
    ],
)
def test_what_the_policy_did_is_an_outcome(record: SegmentRecord, outcome: AgentOutcome) -> None:
    assert outcome_of(record) is outcome


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (segment(code=0), HarnessError),
        (segment(code=1, stderr_tail="Error: broken configuration"), HarnessError),
        (segment(failed(500), code=1), ProviderError),
        (segment(failed(500), code=0), ProviderError),
        (segment(failed(401), code=1, error="Unauthorized"), ProviderError),
        (segment(ANSWERED, failed(None, "upstream stream ended"), code=1), ProviderError),
        (segment(failed(500, WINDOW), code=1), ProviderError),
        (segment(ANSWERED, failed(None, "connection reset", "InterceptionError"), code=1), InterceptionError),
        (segment(code=1, error="The operation timed out."), ProviderError),
        (segment(ANSWERED, code=1, error="The operation timed out."), ProviderError),
        (segment(ANSWERED, code=137), HarnessError),
        (segment(ANSWERED, code=-9), HarnessError),
        (segment(ANSWERED, code=1), HarnessError),
        (segment(ANSWERED, code=0, error="the session broke"), HarnessError),
        (segment(failed(400, WINDOW), ANSWERED, code=1, error="the session broke"), HarnessError),
    ],
)
def test_what_the_infrastructure_did_is_the_error_of_its_boundary(
    record: SegmentRecord, error: type[RolloutError]
) -> None:
    with pytest.raises(error):
        outcome_of(record)


def test_a_time_out_that_only_the_log_claims_is_no_fault_of_the_endpoint() -> None:
    claimed = replace(segment(ANSWERED, code=1, error="The operation timed out."), overdue=False)
    with pytest.raises(HarnessError, match="reported an error"):
        outcome_of(claimed)


def test_an_error_keeps_the_status_and_the_tail_of_the_log() -> None:
    with pytest.raises(ProviderError) as provider:
        outcome_of(segment(failed(429), code=1))
    assert provider.value.status_code == 429
    with pytest.raises(HarnessError, match=r"exit 137.*\nthe last line$"):
        outcome_of(segment(ANSWERED, code=137, events_tail="the last line\n"))
