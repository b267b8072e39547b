"""Kept turns of worlds: the ledger's steps are taken again in a new world; one that gives something else is refused."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opencode_env.opencode.env import OpenCodeEnvConfig
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_runs.turns.kept import kept_turns
from opencode_simulation import Step, World, tool
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import WorldError
from opencode_simulation.ledger import LEDGER_KEY

from tests.support.replies import call
from tests.support.rows import write_rows
from tests.turns.playing import play, text

SLIPPERY = {"id": "lake", "seed": 3, "config": {"map": ["SFFF", "FFFF", "FFFF", "FFFG"]}}
SCRIPT = [*(call("frozen_lake_move", direction=way) for way in ("right", "down", "right")), Reply(text="I stop.")]


def config(dataset: Path, keep: Path | None = None) -> OpenCodeEnvConfig:
    """The frozen lake over a dataset."""
    task = {"world": "frozen-lake"}
    taskset = {"id": "opencode-simulation", "dataset": str(dataset), "task": task}
    turns = {} if keep is None else {"turns": {"keep": str(keep)}}
    return OpenCodeEnvConfig.model_validate({"taskset": taskset, **turns})


@pytest.mark.opencode
@pytest.mark.usefixtures("sandboxes")
async def test_a_branch_goes_on_in_a_world_that_has_taken_the_same_steps(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    trunk = await play(config(write_rows(tmp_path / "rows.jsonl", [SLIPPERY]), kept), ScriptPolicy.of(*SCRIPT))
    (trace,) = trunk.traces
    assert trace.ok, trace.errors
    turns = list(kept_turns(kept))
    assert [(turn.turn, turn.unrestorable) for turn in turns] == [(at, None) for at in (1, 2, 3, 4)]
    asked = [text(body) for body in trunk.bodies(trace)]
    branches = await play(config(turns[2].place), ScriptPolicy.of(*SCRIPT))
    (branch,) = branches.traces
    assert branch.ok, branch.errors
    assert [text(body) for body in branches.bodies(branch)] == asked[2:]
    assert branch.info["branch"]["same_request"] is True
    assert branch.info[LEDGER_KEY] == trace.info[LEDGER_KEY]
    assert branch.reward == trace.reward


class Dice(World):
    """Gives what no seed tells."""

    def reset(self, seed: int | None, config: Mapping[str, Any]) -> str:
        return "ready" if config.get("calm", True) else str(random.random())

    @tool
    def throw(self, sides: int) -> Step:
        """Throw a die."""
        return Step(f"{random.randrange(10**9) % sides}", 1.0)


async def test_a_world_that_gives_something_else_is_refused_with_the_step() -> None:
    async with WorldAlone(Dice, EpisodeSpec(config={"calm": True})) as first:
        await first.episode.call("throw", {"sides": 1})
        await first.episode.call("throw", {"sides": 10**9})
        before = first.ledger.model_copy(deep=True)
    for spec, where in (
        (EpisodeSpec(before=before), r"step 2 \(throw\)"),
        (EpisodeSpec(before=before, config={"calm": False}), r"reset\(\)"),
        (EpisodeSpec(before=before, max_steps=1), r"step 2 \(throw\): the episode is over"),
    ):
        again = WorldAlone(Dice, spec)
        with pytest.raises(WorldError, match=rf"world Dice: {where}.*: another observation than in the episode"):
            await again.episode.start()
        assert again.ledger.summary.error is not None
        await again.episode.close()
    before.steps.pop()
    async with WorldAlone(Dice, EpisodeSpec(before=before)) as same:
        assert same.ledger.steps == before.steps
