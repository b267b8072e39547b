"""The table of outcomes: what follows from it, and that the documents show it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent import classification
from opencode_env.cli_agent.classification import Condition, EndedRun, blame_own_programs, classify, require_scorable
from opencode_env.cli_agent.guard import agent_metrics
from opencode_env.cli_agent.outcome_rule import Evidence, endpoint_failure, patience_of
from opencode_env.cli_agent.outcomes import Outcome, Row, documented, endpoint_errors, retries_of_outcomes
from opencode_env.cli_agent.rollout import Rollout, rollout_of
from opencode_env.scripted_model import Reply
from opencode_runs.difficulty.rate import AGENT_TIMEOUT
from rollout_sandbox.toolbox.scoring import attached
from verifiers.v1.configs.retries import RetryConfig, RetryRule
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Error
from verifiers.v1.types import AssistantMessage, Tool, ToolCall
from verifiers.v1.utils.retries import RetryState

from tests.cli_agent.test_outcome_rule import failed
from tests.cli_agent.test_whose_doing import asks, ending, played
from tests.rubrics.conftest import trace_of
from tests.support.replies import bash, faulty

ROOT = Path(__file__).parents[2]


def test_the_documents_show_the_table() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(documented() in page.read_text() for page in pages), (
        "the table of outcomes and that of the documents differ; opencode_env.cli_agent.outcomes.documented() makes it"
    )


@pytest.mark.parametrize("outcome", Outcome, ids=str)
def test_a_row_is_a_stop_that_is_scored_or_an_error_that_is_not(outcome: Outcome) -> None:
    row = outcome.row
    assert row.scored == (not row.errors)
    assert not (row.stop and row.errors)
    assert row.again or row.errors
    assert "|" not in "".join((row.when, row.advice, row.also))


def test_what_is_not_tried_again_follows_from_the_table_and_a_rule_of_the_users_is_kept() -> None:
    own = RetryRule(type="AgentError", max_retries=3)
    rules = retries_of_outcomes(RetryConfig(rules=[own])).rules
    assert rules[0] == own
    refused = {name for outcome in Outcome if not outcome.row.again for name in outcome.row.errors}
    assert {rule.type for rule in rules if rule.max_retries == 0} == refused
    assert {"AgentError", "BrokenWorldError", "SandboxFileError"} <= refused
    assert retries_of_outcomes(RetryConfig(rules=rules)).rules == rules


@pytest.mark.parametrize("called", [True, False])
def test_a_failure_of_the_sandbox_is_not_tried_again_once_a_tool_was_called_wherever_it_was_noticed(
    called: bool,
) -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    calls = [ToolCall(id="1", name="bash", arguments="{}")] if called else []
    trace.nodes = [MessageNode(message=AssistantMessage(content="", tool_calls=calls), parent=None, sampled=True)]
    trace.tools = [Tool(name="bash", description="", parameters={})]
    trace.record_error(SandboxError("gone"))
    episode = SimpleNamespace(
        traces=[trace], errors=[Error(type=kind, message="") for kind in ("SandboxError", "TaskError")]
    )
    blame_own_programs(episode)  # type: ignore[arg-type]
    kind = "SandboxEndedError" if called else "SandboxError"
    assert [error.type for error in (*trace.errors, *episode.errors)] == [kind, kind, "TaskError"]
    assert trace.stop_condition == ("sandboxended_error" if called else "sandbox_error")
    state = RetryState(retries_of_outcomes(RetryConfig(max_retries=4)))
    assert (state.next_error(trace.errors) is None) == called


class RateLimitError(HarnessError):
    """What a row of one's own could raise."""


@pytest.fixture
def rate_limited(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """One more row and one more condition, and nothing else."""
    row = Row("a rate limit", "wait", errors=("RateLimitError",), again=False, metric="rate_limited", endpoint=True)
    outcome = object.__new__(Outcome)
    outcome._name_, outcome._value_ = "RATE_LIMITED", row
    monkeypatch.setattr(Outcome, "_member_names_", [*Outcome._member_names_, "RATE_LIMITED"])
    monkeypatch.setitem(Outcome._member_map_, "RATE_LIMITED", outcome)

    def holds(run: EndedRun) -> RateLimitError | None:
        error = run.calls[-1].error if run.calls else None
        evident = endpoint_failure(Evidence.of(run.trace, run.first_call, run.harness, run.time_over))
        return RateLimitError(error.message) if evident and error and error.status_code == 429 else None

    conditions = list(classification.AFTER_A_RUN)
    after = next(at for at, one in enumerate(conditions, 1) if one.outcome is Outcome.COMPLETED)
    conditions.insert(after, Condition(outcome, holds, time_over=True))
    monkeypatch.setattr(classification, "AFTER_A_RUN", conditions)
    return outcome


async def test_a_new_outcome_is_one_row_and_one_condition(rate_limited: Outcome) -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    trace.calls.extend([failed(429, "slow down")] * patience_of(None).sends)
    run = EndedRun(rollout_of(trace), trace, None)
    with pytest.raises(RateLimitError, match="slow down"):
        await classify(run)
    assert run.outcome is rate_limited
    trace.stop(Outcome.AGENT_TIMEOUT.row.stop)
    with pytest.raises(RateLimitError, match="slow down"):
        require_scorable(trace)
    assert trace.metrics == {"rate_limited": 1.0}
    assert agent_metrics(trace, None, {rate_limited})["rate_limited"] == 1.0
    assert agent_metrics(trace, None)["rate_limited"] == 0.0
    assert "RateLimitError" in endpoint_errors()
    assert RetryRule(type="RateLimitError", max_retries=0) in retries_of_outcomes(RetryConfig()).rules
    assert "| a rate limit | `RateLimitError`; `rate_limited` = 1 | wait: not tried again by default |" in documented()


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("before", [[], [bash("ls")]], ids=["before a tool call", "after one"])
async def test_a_rollout_of_a_new_outcome_has_its_error_and_metric(rate_limited: Outcome, before: list[Reply]) -> None:
    trace = await played(asks(4), *before, faulty("status", status=429))
    assert ending(trace) == "RateLimitError"
    assert trace.metrics["rate_limited"] == 1.0


def test_who_reads_runs_without_an_environment_knows_the_same_stop() -> None:
    assert Outcome.AGENT_TIMEOUT.row.stop == AGENT_TIMEOUT


async def test_a_rollout_is_found_at_its_trace_is_in_no_dump_and_ends_once() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    before = trace.model_dump_json()
    rollout = Rollout()
    rollout.begin(trace)
    assert rollout_of(trace) is rollout
    assert trace.model_dump_json() == before
    assert attached(trace_of(vf.TaskData(idx=0, prompt="x"))) is None
    await rollout.end()
    await rollout.end()
    assert (rollout.gateway, rollout.tunnel, rollout.live_sub) == (None, None, None)
