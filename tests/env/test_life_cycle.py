"""Hooks, deadlines and errors of a rollout's stages, over a taskset that is not ours, in one `vf-eval`."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.support.machine import slowdown
from tests.support.replies import bash, faulty
from tests.support.rows import no_process, probe, probe_arguments, script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

HOOKS = ["env-first", "task", "rubric", "env-last"]
"""In the order of their priorities."""

ROWS = [
    probe("agent-late", check=f"test -f /app/made && {no_process('sleep')}"),
    probe("sound", check="test -f /app/made"),
    probe("model-fails"),
    probe("setup-fails", before="echo no such fixture >&2; exit 3"),
    probe("setup-late", before="sleep 600"),
    probe("finalize-late", after="sleep 600", timeout={"finalize": 1}),
    probe("scoring-late", check="sleep 600", timeout={"scoring": 1}),
    probe("hook-raises", hook="raises"),
    probe("hook-hangs", hook="hangs"),
]
TIME_FOR_WORK = {"agent-late": {"agent": 10}, "setup-late": {"setup": 6}}
"""Time limits (s) of stages that shall do something first: begin to work, have a sandbox."""
SCRIPTS = [
    script("sound", bash("touch made"), Reply(text="done")),
    script("model-fails", bash("touch made"), faulty("status", status=401, body="no")),
    script("agent-late", bash("touch made; setsid sleep 599 & sleep 600")),
]


@dataclass(frozen=True)
class Played:
    """The run, its journal, and the prompts that reached the model."""

    finished: FinishedEvaluation
    journal: list[dict[str, Any]]
    prompts: str

    def hooks(self, name: str) -> list[dict[str, Any]]:
        """What the hooks of one row saw, in order."""
        return [entry for entry in self.journal if entry["task"] == name]


@pytest.fixture(scope="module")
def played(shared_home: UserHome) -> Played:
    """All rows, three at a time."""
    busy = slowdown()
    limits = {name: {stage: s * busy for stage, s in of.items()} for name, of in TIME_FOR_WORK.items()}
    rows = [{**row, "timeout": limits[row["id"]]} if row["id"] in limits else row for row in ROWS]
    dataset = write_rows(shared_home.root / "rows.jsonl", rows)
    journal = shared_home.root / "journal.jsonl"

    async def run() -> tuple[FinishedEvaluation, str]:
        policy = ScriptPolicy(*SCRIPTS, script("", Reply(text="done")).model_copy(update={"match": ""}))
        arguments = [*probe_arguments(dataset, env_id="probe-env"), "-c", "3"]
        async with ScriptedModel(policy) as model:
            finished = await shared_home.run("life", model.base_url, *arguments, env={"PROBE_JOURNAL": str(journal)})
            return finished, "\n".join(json.dumps(request.body) for request in model.requests)

    finished, prompts = asyncio.run(run())
    return Played(finished, [json.loads(line) for line in journal.read_text().splitlines()], prompts)


@pytest.mark.parametrize("name", [row["id"] for row in ROWS])
def test_cleanup_hooks_run_once_each_by_priority_in_a_live_sandbox(played: Played, name: str) -> None:
    seen = played.hooks(name)
    assert [entry["hook"] for entry in seen] == HOOKS
    assert all(entry["files"] is not None for entry in seen)


def test_hooks_see_the_files_and_the_verdict_of_the_rollout(played: Played) -> None:
    trace = played.finished.trace("sound")
    for entry in played.hooks("sound"):
        assert (entry["files"], entry["trace"], entry["rewards"]) == (["made"], trace.id, [1.0])
    assert {entry["error"] for entry in played.hooks("model-fails")} == {"ProviderError"}
    assert {entry["error"] for entry in played.hooks("setup-fails")} == {"TaskError"}


def test_a_hook_that_raises_or_hangs_is_reported_and_changes_no_verdict(played: Played) -> None:
    for name, reason in (("hook-raises", "RuntimeError: this hook raises"), ("hook-hangs", "TimeoutError")):
        trace = played.finished.trace(name)
        assert (trace.ok, trace.reward) == (True, 1.0)
        assert f'cleanup hook "ProbeTask.note_task" failed: {reason}' in played.finished.log


def test_the_rubric_is_torn_down_once_at_the_end(played: Played) -> None:
    assert [entry["hook"] for entry in played.journal].count("teardown") == 1
    assert played.journal[-1]["hook"] == "teardown"


@pytest.mark.parametrize(
    ("name", "stage"), [("setup-late", "setup"), ("finalize-late", "finalize"), ("scoring-late", "scoring")]
)
def test_the_deadline_of_a_stage_is_an_error_and_never_a_reward(played: Played, name: str, stage: str) -> None:
    trace = played.finished.trace(name)
    assert played.finished.error(name).startswith(f"TaskError: {stage} did not finish within its deadline")
    assert f"--env.agent.timeout.{stage}" in played.finished.error(name)
    assert not trace.ok
    assert all(reward is None for reward in trace.rewards.values())
    assert not played.finished.episode(name).ok


def test_the_agents_own_time_limit_is_scored_after_its_processes_are_ended(played: Played) -> None:
    trace = played.finished.trace("agent-late")
    assert trace.num_turns, f"this machine is too busy: the agent did not come to its command: {trace.errors}"
    assert (trace.ok, trace.stop_condition, trace.reward) == (True, "agent_timeout", 1.0)
    assert trace.metrics["agent_timeout"] == 1.0
    assert trace.metrics["agent_error"] == 0.0


def test_a_model_failure_is_a_provider_error_and_not_scored(played: Played) -> None:
    trace = played.finished.trace("model-fails")
    assert played.finished.error("model-fails").startswith("ProviderError")
    assert not trace.ok
    assert all(reward is None for reward in trace.rewards.values())
    assert trace.metrics["agent_error"] == 1.0


def test_a_failing_setup_ends_the_rollout_before_the_agent(played: Played) -> None:
    assert "no such fixture" in played.finished.error("setup-fails")
    assert "row sound:" in played.prompts
    assert "row setup-fails:" not in played.prompts
    assert "row setup-late:" not in played.prompts


def test_every_rollout_has_its_line_failed_ones_included(played: Played) -> None:
    assert len(played.finished.lines) == len(ROWS)
    (line,) = [line for line in played.finished.lines if "task=model-fails " in line]
    assert "reward=- error=ProviderError: " in line
    others = [line for line in played.finished.log.splitlines() if "rollout done: " in line]
    assert others
    assert not any("reward=" in line for line in others)


def test_nothing_is_left_behind(played: Played, shared_home: UserHome) -> None:
    assert played.finished.exit_code == 0
    assert shared_home.leftovers() == []
