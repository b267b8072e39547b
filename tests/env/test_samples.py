"""`vf-eval opencode-env` over the shipped samples in confined local sandboxes, two runs at a time.

Those that are not solved here are in `test_demo.py`, `test_podman.py` and `test_env_server.py`, and all of them in
`make test-whole`.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from opencode_env.agents.opencode.builds import DEFAULT_VERSION
from opencode_env.agents.opencode.config import BUILT_IN_TOOLS
from opencode_env.scripted_model import SamplesPolicy, ScriptedModel
from verifiers.v1.trace import WireTrace

from tests.support.held_model import HeldModel
from tests.support.machine import slowdown
from tests.support.sample_rows import sample_rows
from tests.support.sizes import size
from tests.support.user_home import FinishedEvaluation, UserHome, is_closed
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

SAMPLES = {sample.id: sample for sample in sample_rows()}
SOLVED = size(["arithmetic-orders", "rename-function", "pig-latin", "cone-volume", "quadratic-roots"], [*SAMPLES])
PARTIAL = ("csv-report", "rotate-logs", "pig-latin")
"""Samples with rewards between 0 and 1, and those failed here: `scripted_model/test_samples` fails all."""


@dataclass(frozen=True)
class Played:
    """A run with what the model saw of it."""

    finished: FinishedEvaluation
    requests: int
    peak: int
    """The most calls in flight at once."""

    @property
    def traces(self) -> list[WireTrace]:
        return [trace for episode in self.finished.episodes for trace in episode.traces]


async def play(home: UserHome, name: str, model: ScriptedModel, *options: str) -> Played:
    async with model:
        finished = await home.run(name, model.base_url, "opencode-env", "-c", "3", *options)
        return Played(finished, len(model.requests), model.peak_active)


def only(names: Sequence[str]) -> tuple[str, str]:
    return "--select.include.ids", json.dumps(names)


async def play_side_by_side(home: UserHome, name: str) -> Played:
    """The first rollouts get their first answers when three of them wait for one."""
    model = HeldModel(SamplesPolicy(1.0))
    async with asyncio.TaskGroup() as group:
        played = group.create_task(play(home, name, model, *only(SOLVED)))
        await until(lambda: model.active >= 3 or played.done())
        model.released.set()
    return played.result()


@pytest.fixture(scope="module")
def runs(shared_home: UserHome) -> tuple[Played, Played]:
    """Two runs at the same time, of one user: in one five samples are solved, in the other three are failed."""

    async def both() -> tuple[Played, Played]:
        failing = play(shared_home, "failed", ScriptedModel(SamplesPolicy(0.0)), *only(PARTIAL))
        return await asyncio.gather(play_side_by_side(shared_home, "solved"), failing)

    return asyncio.run(both())


@pytest.fixture(scope="module")
def solved(runs: tuple[Played, Played]) -> Played:
    """Every sample of its solved."""
    return runs[0]


@pytest.fixture(scope="module")
def failed(runs: tuple[Played, Played]) -> Played:
    """No sample solved of those that give a part."""
    return runs[1]


def test_a_model_that_solves_everything_is_rewarded_with_one_on_every_sample(solved: Played) -> None:
    assert solved.finished.exit_code == 0, solved.finished.log
    rewards = {episode.task.data.id: episode.traces[0].reward for episode in solved.finished.episodes}
    assert rewards == dict.fromkeys(SOLVED, 1.0)
    assert all(trace.ok and trace.stop_condition == "agent_completed" for trace in solved.traces)


def test_a_model_that_fails_everything_is_scored_below_one_and_is_no_error(failed: Played) -> None:
    assert failed.finished.exit_code == 0, failed.finished.log
    assert all(trace.ok and not trace.errors for trace in failed.traces)
    rewards = {str(trace.task.data.id): trace.reward for trace in failed.traces}
    assert set(rewards) == set(PARTIAL)
    assert all(0.0 <= reward < 1.0 for reward in rewards.values()), rewards
    assert any(reward > 0 for reward in rewards.values()), rewards


def test_every_rollout_leaves_its_record_on_the_trace(solved: Played) -> None:
    sessions, busy = set(), slowdown()
    for trace in solved.traces:
        record = trace.info["agent"]
        assert (record["exit_code"], record["version"], record["outcome"]) == (0, DEFAULT_VERSION, "completed")
        assert record["session_id"].startswith("ses_")
        assert 0.05 < record["duration"] < 60 * busy
        assert 0 < len(record["log_tail"].encode()) <= 4000
        assert record["session_id"] in record["log_tail"]
        sessions.add(record["session_id"])
    assert len(sessions) == len(SOLVED)


def test_verify_results_are_on_the_trace(solved: Played, failed: Played) -> None:
    for trace in (*solved.traces, *failed.traces):
        verify = SAMPLES[str(trace.task.data.id)].verify
        results = trace.info.get("verify", [])
        assert [result["command"] for result in results] == list(verify)
        assert all({"exit_code", "duration", "stdout", "stderr", "timed_out"} <= set(result) for result in results)
    assert all(result["exit_code"] == 0 for trace in solved.traces for result in trace.info.get("verify", []))


def test_metrics_are_complete_and_agree_with_the_conversation(solved: Played, failed: Played) -> None:
    for trace in (*solved.traces, *failed.traces):
        metrics = trace.metrics
        per_tool = {f"{tool}_calls" for tool in BUILT_IN_TOOLS} & set(metrics)
        assert {"bash_calls", "edit_calls", "read_calls", "write_calls"} <= per_tool
        counts = {"num_turns", "total_tool_calls", "unique_tools_used", "has_tool_calls", "model_call_errors"}
        flags = {"agent_timeout", "agent_error", "context_overflow", "empty_answer"}
        assert counts | flags <= set(metrics)
        assert metrics["total_tool_calls"] == sum(metrics[name] or 0 for name in per_tool) > 0
        assert metrics["num_turns"] == trace.num_turns > 1
        assert all(metrics[name] == 0 for name in flags | {"model_call_errors"})
        if SAMPLES[str(trace.task.data.id)].verify:
            assert metrics["verify_total"] == len(SAMPLES[str(trace.task.data.id)].verify)


def test_one_line_per_rollout_says_how_it_went(solved: Played, failed: Played) -> None:
    for played, count in ((solved, len(SOLVED)), (failed, len(PARTIAL))):
        assert len(played.finished.lines) == count
        for trace in played.traces:
            (line,) = [line for line in played.finished.lines if f"task={trace.task.data.id} " in line]
            assert f"turns={trace.num_turns} " in line
            assert "stop=agent_completed exit=0 seconds=" in line
            assert re.search(rf" reward={trace.reward:.3f} error=- (?:failed=.* )?run=", line)
            assert ("failed=" in line) == any(record["exit_code"] for record in trace.info.get("verify", ()))


def test_every_call_of_the_agent_went_through_the_record(solved: Played) -> None:
    assert solved.requests == sum(len(trace.calls) for trace in solved.traces)
    assert solved.requests == sum(trace.num_turns for trace in solved.traces)


def test_rollouts_of_one_process_run_side_by_side(solved: Played) -> None:
    assert solved.peak >= 3


def test_nothing_is_left_behind(solved: Played, failed: Played, shared_home: UserHome) -> None:
    assert shared_home.leftovers() == []
    assert all(is_closed(port) for played in (solved, failed) for port in played.finished.ports)
    assert solved.finished.ports


def test_no_warning_scares_the_user_of_a_confined_sandbox(solved: Played) -> None:
    assert "WARNING" not in solved.finished.log
    assert "ERROR" not in solved.finished.log
