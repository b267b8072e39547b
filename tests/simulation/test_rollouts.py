"""Both shipped worlds through `vf-eval`: the lake, each rollout with its own server; the tracker, which all share."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from opencode_env.scripted_model import ScriptedModel, WorldsPolicy
from opencode_simulation import trajectory_of
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.ledger import Ledger
from opencode_simulation.reference import find_world
from verifiers.v1.trace import WireTrace

from tests.simulation.ledgers import played as ledger
from tests.support.rows import write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow]

CLASSIC = ["SFFF", "FHFH", "FFFH", "HFFG"]
LAKES = [
    {"id": "one", "seed": 3, "config": {"slippery": False}},
    {"id": "same", "seed": 3, "config": {"slippery": False}},
    {
        "id": "family",
        "seed": 1,
        "environment_context": {"map": CLASSIC},
        "system_prompt": "You are on thin ice.",
        "user_prompt_template": "Walk {carefully}.\n{observation}",
    },
    {"id": "short", "seed": 3, "config": {"slippery": False}, "max_steps": 2},
]
WORK = ("triage-1", "duplicates-2", "stale-3", "report-4", "any-21", "any-22")


def of_world(world: str, server: str) -> list[str]:
    """Arguments of `vf-eval` for one world."""
    return ["opencode-simulation", "--env.taskset.task.world", world, "--env.taskset.task.server", server, "-c", "3"]


@pytest.fixture(scope="module")
def runs(light_opencode: None, shared_home: UserHome) -> tuple[FinishedEvaluation, FinishedEvaluation]:
    """The lake, with a server for each rollout; the tracker, with one for all."""
    words = ["--env.taskset.dataset", str(write_rows(shared_home.root / "rows.jsonl", LAKES))]
    words += ["--env.taskset.task.rubric.discount", "0.5"]

    async def both() -> tuple[FinishedEvaluation, FinishedEvaluation]:
        async with ScriptedModel(WorldsPolicy()) as model:
            lake = shared_home.run("lake", model.base_url, *of_world("frozen-lake", "rollout"), *words)
            tracker = shared_home.run("tracker", model.base_url, *of_world("issue-tracker", "shared"))
            return await asyncio.gather(lake, tracker)

    return asyncio.run(both())


@pytest.fixture(scope="module")
def lake(runs: tuple[FinishedEvaluation, FinishedEvaluation]) -> FinishedEvaluation:
    return runs[0]


@pytest.fixture(scope="module")
def tracker(runs: tuple[FinishedEvaluation, FinishedEvaluation]) -> FinishedEvaluation:
    return runs[1]


def traces(finished: FinishedEvaluation) -> Sequence[WireTrace]:
    return [trace for episode in finished.episodes for trace in episode.traces]


def test_every_piece_of_work_in_the_tracker_is_done_and_rewarded(tracker: FinishedEvaluation) -> None:
    assert tracker.exit_code == 0, tracker.log
    assert {trace.task.data.id for trace in traces(tracker)} == set(WORK)
    for trace in traces(tracker):
        assert (trace.ok, trace.reward) == (True, 1.0), (trace.task.data.id, trace.errors, trace.info)
        assert trace.stop_condition == "environment_done"
        assert trace.info["termination_reason"] == "control_plane_signal"
        assert all(ledger(trace).steps[-1].info["checks"].values())  # type: ignore[union-attr]
    assert sum(trace.metrics["environment_steps"] or 0 for trace in traces(tracker)) > 4 * len(WORK)


def test_a_walk_that_reaches_the_goal_is_discounted_by_its_steps(lake: FinishedEvaluation) -> None:
    assert lake.exit_code == 0, lake.log
    for name in ("one", "same"):
        trace = lake.trace(name)
        assert trace.ok, trace.errors
        steps = ledger(trace).steps
        assert [entry.reward for entry in steps] == [0.0] * (len(steps) - 1) + [1.0]
        assert trace.reward == 0.5 ** (len(steps) - 1)


def test_two_rollouts_of_one_seed_played_the_same_world_apart(lake: FinishedEvaluation) -> None:
    one, same = ledger(lake.trace("one")), ledger(lake.trace("same"))
    assert one.steps == same.steps
    assert one.summary.first_observation == same.summary.first_observation


def test_the_first_observation_fills_the_rows_template(lake: FinishedEvaluation) -> None:
    trace = lake.trace("family")
    first = ledger(trace).summary.first_observation
    assert trace.task.data.prompt == f"Walk {{carefully}}.\n{first}"
    row = trajectory_of(trace).session.dataset_row
    assert row.user_prompt_template == "Walk {carefully}.\n{observation}"
    assert row.environment_context == {"map": CLASSIC}
    assert "\n".join(CLASSIC) in str(trace.messages[1].content)
    assert "You are on thin ice." in str(trace.messages[0].content)


def test_the_limit_of_steps_is_told_in_the_familys_words(lake: FinishedEvaluation) -> None:
    trace = lake.trace("short")
    assert (trace.ok, trace.reward, trace.info["termination_reason"]) == (True, 0.0, "max_steps")
    assert [entry.truncated for entry in ledger(trace).steps] == [False, True]


def test_every_ledger_is_what_the_same_calls_give_alone(lake: FinishedEvaluation, tracker: FinishedEvaluation) -> None:
    async def replay(world: str, trace: WireTrace) -> Ledger:
        data = trace.task.data.model_dump()
        spec = EpisodeSpec(seed=data["seed"], config=data["config"], max_steps=data.get("max_steps"))
        async with WorldAlone(find_world(world), spec) as alone:
            for entry in ledger(trace).steps:
                await alone.episode.call(entry.tool, entry.arguments)
            return alone.ledger

    for world, finished in (("frozen-lake", lake), ("issue-tracker", tracker)):
        for trace in traces(finished):
            assert asyncio.run(replay(world, trace)).steps == ledger(trace).steps


def test_the_agent_never_sees_a_reward(lake: FinishedEvaluation, tracker: FinishedEvaluation) -> None:
    for trace in (*traces(lake), *traces(tracker)):
        seen = json.dumps([message.model_dump(mode="json") for message in trace.messages if message.role == "tool"])
        assert not [word for word in ("reward", "checks", "terminated") if word in seen]


def test_a_trace_is_a_trajectory_of_its_family(lake: FinishedEvaluation, tracker: FinishedEvaluation) -> None:
    for trace in (*traces(lake), *traces(tracker)):
        found = trajectory_of(trace)
        assert len(found.observations) == len(found.actions) + 1 == len(found.rewards) + 1 == found.steps + 1
        assert (found.total_reward, found.terminated) == (sum(found.rewards), True)
        assert found.session.seed == found.session.dataset_row.seed == trace.task.data.model_dump()["seed"]
        assert all(call.tool_call_id for call in found.tool_calls)
        assert found.termination_reason == trace.info["termination_reason"]
        assert found.usage["total_tokens"] > 0
        assert found.duration > 0
        assert len(found.conversation_history) == len(trace.messages)


def test_nothing_is_left_behind_and_nothing_is_warned_of(
    lake: FinishedEvaluation, tracker: FinishedEvaluation, shared_home: UserHome
) -> None:
    assert shared_home.leftovers() == []
    for finished in (lake, tracker):
        assert not [word for word in ("WARNING", "ERROR") if word in finished.log]


def test_the_agents_tools_are_the_worlds_and_no_resources(tracker: FinishedEvaluation) -> None:
    trace = tracker.trace("triage-1")
    offered = {str(found.name) for found in trace.tools or []}
    tools = "list_issues get_issue search_issues list_people create_issue comment_issue label_issue assign_issue "
    wanted = {f"tracker_{name}" for name in f"{tools} close_issue finish".split()}
    assert {name for name in offered if name.startswith("tracker_")} == wanted


async def test_an_environment_does_not_start_with_a_world_that_is_not_what_it_stands_for(
    shared_home: UserHome, tmp_path: Path
) -> None:
    production = tmp_path / "production.json"
    tools = [{"name": "walk", "description": "", "parameters": {"type": "object", "properties": {}}}]
    production.write_text(json.dumps(tools))
    (tmp_path / "stale_world.py").write_text(
        "from opencode_simulation.samples.frozen_lake import FrozenLake\n"
        f"class Stale(FrozenLake):\n    PRODUCTION = {str(production)!r}\n"
    )
    words = of_world("stale_world:Stale", "rollout")
    async with ScriptedModel(WorldsPolicy()) as model:
        finished = await shared_home.run("stale", model.base_url, *words, env={"PYTHONPATH": str(tmp_path)})
    assert finished.exit_code != 0
    assert 'tool "walk": missing in the simulation' in finished.log
    assert finished.episodes == []
