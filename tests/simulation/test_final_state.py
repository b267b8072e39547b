"""A world judges its final state once, when its agent has stopped, and only then."""

import io
from collections.abc import Mapping
from typing import Any

import pytest
from opencode_simulation import Step, World, tool, trajectory_of
from opencode_simulation.__main__ import play
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import CallRefused
from opencode_simulation.ledger import FINISH
from opencode_simulation.task import SimulationTaskData, _write

from tests.rubrics.conftest import trace_of


class Shelf(World):
    """Pays for what stands on it at the end."""

    def reset(self, seed: int | None, config: Mapping[str, Any]) -> str:
        self.there: list[str] = []
        self.answer: Any = config.get("answer", "judge")
        return "an empty shelf"

    @tool
    def put(self, what: str) -> Step:
        """Put something there; a bell ends it all."""
        self.there.append(what)
        return Step(f"{len(self.there)} things", terminated=what == "bell")

    def finish(self) -> Any:
        if self.answer != "judge":
            return self.answer
        self.there.append("judged")
        return Step("", self.there.count("cup") / 2, terminated=True, info={"there": self.there})


async def test_the_final_state_is_judged_once_and_stands_in_the_ledger() -> None:
    async with WorldAlone(Shelf, EpisodeSpec()) as world:
        await world.episode.call("put", {"what": "cup"})
        await world.episode.finish()
        await world.episode.finish()
        with pytest.raises(CallRefused, match="the episode is over"):
            await world.episode.call("put", {"what": "cup"})
    ledger = world.ledger
    last = ledger.steps[-1]
    assert [entry.tool for entry in ledger.steps] == ["put", FINISH]
    assert (last.step, last.reward, last.info, last.arguments) == (2, 0.5, {"there": ["cup", "judged"]}, {})
    whole = ledger.summary
    assert (whole.total_reward, whole.steps, whole.terminated, whole.truncated) == (0.5, 1, False, False)


@pytest.mark.parametrize(("what", "limit"), [("bell", None), ("cup", 1)])
async def test_an_episode_that_has_ended_is_not_judged_again(what: str, limit: int | None) -> None:
    async with WorldAlone(Shelf, EpisodeSpec(max_steps=limit)) as world:
        await world.episode.call("put", {"what": what})
        await world.episode.finish()
    assert [entry.tool for entry in world.ledger.steps] == ["put"]


async def test_the_judgement_is_no_step_of_the_agents_that_a_limit_counts() -> None:
    async with WorldAlone(Shelf, EpisodeSpec(max_steps=2)) as world:
        await world.episode.call("put", {"what": "cup"})
        await world.episode.finish()
    assert (world.ledger.summary.total_reward, world.ledger.summary.truncated) == (0.5, False)
    assert "truncated_by" not in world.ledger.steps[-1].info


@pytest.mark.parametrize("answer", [0.5, "well done", {"reward": 1}, ("", "1"), ("", float("nan"))])
async def test_a_judgement_that_is_none_is_the_worlds_failure(answer: Any) -> None:
    class Odd(Shelf):
        def finish(self) -> Any:
            return answer

    async with WorldAlone(Odd, EpisodeSpec()) as world:
        await world.episode.finish()
    assert str(world.ledger.summary.error).startswith("world Odd: finish(): ")
    assert world.ledger.steps == []


async def test_a_world_may_have_nothing_to_say_or_a_tool_of_that_name() -> None:
    class Tool(Shelf):
        @tool
        def finish(self) -> Step:
            """Hand it in."""
            return Step("", 1.0, terminated=True)

    for world, spec in ((Tool, EpisodeSpec()), (Shelf, EpisodeSpec(config={"answer": None}))):
        async with WorldAlone(world, spec) as alone:
            await alone.episode.finish()
        assert (alone.ledger.steps, alone.ledger.summary.error) == ([], None)


async def test_who_plays_a_world_and_stops_sees_what_its_final_state_is_worth() -> None:
    screen = io.StringIO()
    async with WorldAlone(Shelf, EpisodeSpec()) as world:
        await play(world, io.StringIO("put cup\nquit\n"), screen)
    assert (
        'the final state | reward 0.5 · {"there": ["cup", "judged"]}\nreturn 0.5 after 1 steps\n' in screen.getvalue()
    )


async def test_a_trajectory_pays_for_the_final_state_and_counts_no_action_for_it() -> None:
    async with WorldAlone(Shelf, EpisodeSpec()) as world:
        await world.episode.call("put", {"what": "cup"})
        await world.episode.finish()
    trace = trace_of(SimulationTaskData(idx=0, id="one", prompt="Go."))
    _write(trace, world.ledger)
    found = trajectory_of(trace)
    assert (found.steps, len(found.actions), len(found.observations)) == (1, 1, 2)
    assert (found.rewards, found.total_reward) == ([0.0, 0.5], 0.5)
