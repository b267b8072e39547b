"""The table of outcomes: what follows from it, and that the documents show it."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent import classification
from opencode_env.cli_agent.classification import (
    OUTCOME,
    Condition,
    EndedRun,
    Evidence,
    blame_own_programs,
    classify,
    endpoint_failure,
    note_outcome,
    require_scorable,
)
from opencode_env.cli_agent.env import CliAgentEnvConfig
from opencode_env.cli_agent.features import Feature
from opencode_env.cli_agent.guard import agent_metrics
from opencode_env.cli_agent.outcomes import (
    NO_ANSWER,
    RunOutcome,
    all_outcomes,
    documented,
    endpoint_errors,
    retries_of_outcomes,
)
from opencode_env.cli_agent.rollout import Patience, Rollout, rollout_of
from opencode_env.errors import AgentError, BrokenBackendError, BrokenUserError, NodeLostError, NodeMemoryError
from opencode_env.scripted_model import Reply
from opencode_rubrics import SandboxFileError, ScoringError
from opencode_rubrics.errors import JudgeError
from opencode_runs.traces.record import TraceRecord
from opencode_simulation.errors import BrokenWorldError, ToolMismatchError, WorldError
from rollout_sandbox.errors import SandboxDiskError, SandboxEndedError
from rollout_sandbox.outcomes import Outcome
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


TABLE = OpenCodeEnvConfig().outcomes()
"""All outcomes: of an agent's run, of the features of OpenCode's environment, and of the installed distributions."""


def test_the_documents_show_the_table() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(documented(TABLE) in page.read_text() for page in pages), (
        "the table of outcomes and that of the documents differ; scripts/make_reference.py makes it"
    )


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_row_is_a_stop_that_is_scored_or_an_error_that_is_not(row: Outcome) -> None:
    assert row.scored == (not row.errors)
    assert not (row.stop and row.errors)
    assert row.again or row.errors
    assert "|" not in "".join((row.when, row.advice, row.also))


def test_the_table_has_the_rows_that_error_classes_of_each_distribution_bear() -> None:
    bearing: set[Any] = {ScoringError, JudgeError, SandboxFileError, SandboxEndedError, SandboxDiskError, AgentError}
    bearing |= {
        BrokenWorldError,
        WorldError,
        ToolMismatchError,
        BrokenBackendError,
        BrokenUserError,
        NodeLostError,
        NodeMemoryError,
    }
    assert {kind.__name__ for kind in bearing if kind.outcome not in TABLE} == set()
    assert all(kind.__name__ in kind.outcome.errors for kind in bearing)
    assert len(TABLE) == len({row.name or row.when for row in TABLE})


class OwnError(HarnessError):
    """What a feature of one's own could raise."""

    outcome = Outcome("a quota is used up", "wait", again=False, metric="quota")


class Owning(Feature):
    outcomes = (OwnError.outcome,)


class OwningConfig(CliAgentEnvConfig):
    def features(self) -> list[Feature]:
        return [Owning()]


def test_a_features_rows_are_in_the_table_of_its_environment_alone() -> None:
    assert OwnError.outcome in OwningConfig().outcomes()
    assert RetryRule(type="OwnError", max_retries=0) in OwningConfig().retries.rules
    assert "OwnError" not in {rule.type for rule in CliAgentEnvConfig().retries.rules}
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    rollout_of(trace).outcomes = OwningConfig().outcomes()
    assert agent_metrics(trace, None, {OwnError.outcome})["quota"] == 1.0


def test_an_environment_makes_its_features_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}})
    made: list[Sequence[Feature]] = []

    def features(self: OpenCodeEnvConfig) -> Sequence[Feature]:
        made.append(of_class(self))
        return made[-1]

    of_class = OpenCodeEnvConfig.features
    monkeypatch.setattr(OpenCodeEnvConfig, "features", features)
    OpenCodeEnv(config)
    assert len(made) == 1


def test_what_is_not_tried_again_follows_from_the_table_and_a_rule_of_the_users_is_kept() -> None:
    own = RetryRule(type="AgentError", max_retries=3)
    rules = retries_of_outcomes(RetryConfig(rules=[own]), TABLE).rules
    assert rules[0] == own
    refused = {name for row in TABLE if not row.again for name in row.errors}
    assert {rule.type for rule in rules if rule.max_retries == 0} == refused
    assert {"AgentError", "BrokenWorldError", "SandboxFileError"} <= refused
    assert retries_of_outcomes(RetryConfig(rules=rules), TABLE).rules == rules


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
    state = RetryState(retries_of_outcomes(RetryConfig(max_retries=4), TABLE))
    assert (state.next_error(trace.errors) is None) == called


class RateLimitError(HarnessError):
    """What a row of one's own could raise."""

    outcome = Outcome("a rate limit", "wait", again=False, metric="rate_limited", endpoint=True)


@pytest.fixture
def rate_limited(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """One more row and one more condition, and nothing else."""
    outcome = RateLimitError.outcome
    monkeypatch.setattr(RunOutcome, "RATE_LIMITED", outcome, raising=False)

    def holds(run: EndedRun) -> RateLimitError | None:
        error = run.calls[-1].error if run.calls else None
        evident = endpoint_failure(Evidence.of(run.trace, run.first_call, run.time_over))
        return RateLimitError(error.message) if evident and error and error.status_code == 429 else None

    conditions = list(classification.AFTER_A_RUN)
    after = next(at for at, one in enumerate(conditions, 1) if one.outcome is RunOutcome.COMPLETED)
    conditions.insert(after, Condition(outcome, holds, time_over=True))
    monkeypatch.setattr(classification, "AFTER_A_RUN", conditions)
    return outcome


async def test_a_new_outcome_is_one_row_and_one_condition(rate_limited: Outcome) -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    trace.calls.extend([failed(429, "slow down")] * Patience().sends)
    run = EndedRun(rollout_of(trace), trace)
    with pytest.raises(RateLimitError, match="slow down"):
        await classify(run)
    assert run.outcome is rate_limited
    trace.stop(RunOutcome.AGENT_TIMEOUT.stop)
    with pytest.raises(RateLimitError, match="slow down"):
        require_scorable(trace)
    assert trace.metrics == {"rate_limited": 1.0}
    assert agent_metrics(trace, None, {rate_limited})["rate_limited"] == 1.0
    assert agent_metrics(trace, None)["rate_limited"] == 0.0
    assert "RateLimitError" in endpoint_errors()
    assert RetryRule(type="RateLimitError", max_retries=0) in retries_of_outcomes(RetryConfig(), all_outcomes()).rules
    shown = "| a rate limit | `RateLimitError`; `rate_limited` = 1 | wait: not tried again by default |"
    assert shown in documented(all_outcomes())


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("before", [[], [bash("ls")]], ids=["before a tool call", "after one"])
async def test_a_rollout_of_a_new_outcome_has_its_error_and_metric(rate_limited: Outcome, before: list[Reply]) -> None:
    trace = await played(asks(4), *before, faulty("status", status=429))
    assert ending(trace) == "RateLimitError"
    assert trace.metrics["rate_limited"] == 1.0
    note_outcome(trace)
    assert trace.info[OUTCOME] == {"name": "RateLimitError", "again": False}


SCORED = {
    "COMPLETED": ("agent_completed", {}, RunOutcome.COMPLETED),
    "AGENT_TIMEOUT": ("agent_timeout", {"agent_timeout": 1.0}, None),
    "LIMIT": ("max_total_tokens", {}, RunOutcome.LIMIT),
    "CONTEXT_FULL": ("max_total_tokens", {"context_overflow": 1.0}, RunOutcome.CONTEXT_FULL),
    "CONTENT_FILTER": ("content_filter", {}, RunOutcome.COMPLETED),
    "OUTLIVED": ("agent_completed", {"agent_survived": 1.0}, RunOutcome.COMPLETED),
}
"""The stop, the metrics and the outcome of the agent's last run that make each."""


@pytest.mark.parametrize("name", SCORED)
def test_a_trace_says_how_its_rollout_ended_and_its_readers_need_no_environment(name: str) -> None:
    stop, metrics, last = SCORED[name]
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    rollout_of(trace).outcome = last
    trace.stop(stop)
    trace.ok = True
    trace.record_metrics(metrics)
    note_outcome(trace)
    assert trace.info[OUTCOME] == {"name": name, "again": True}
    read = TraceRecord.model_validate_json(trace.model_dump_json())
    assert read.outcome is not None
    assert (read.outcome.name, read.timed_out) == (name, name == "AGENT_TIMEOUT")


@pytest.mark.parametrize(
    ("kind", "message", "last", "noted"),
    [
        ("HarnessError", "exited 1", RunOutcome.AGENT_FAILED, ("AGENT_FAILED", True)),
        ("HarnessError", f"{NO_ANSWER} it was refused", None, ("NO_ANSWER", False)),
        ("HarnessError", "it sat there", RunOutcome.NOT_STARTED, ("NOT_STARTED", True)),
        ("BrokenWorldError", "it died", RunOutcome.COMPLETED, ("BrokenWorldError", False)),
        ("SandboxDiskError", "it is full", None, ("SandboxMemoryError", False)),
        ("StrangeError", "?", RunOutcome.COMPLETED, ("StrangeError", True)),
    ],
)
def test_a_failed_trace_says_its_row_and_whether_it_is_tried_again(
    kind: str, message: str, last: Outcome | None, noted: tuple[str, bool]
) -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    rollout_of(trace).outcome = last
    trace.errors.append(Error(type=kind, message=message))
    note_outcome(trace)
    assert (trace.info[OUTCOME]["name"], trace.info[OUTCOME]["again"]) == noted


def test_an_older_trace_is_read_by_its_stop_condition() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    trace.stop(RunOutcome.AGENT_TIMEOUT.stop)
    read = TraceRecord.model_validate_json(trace.model_dump_json())
    assert (read.outcome, read.timed_out) == (None, True)


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
