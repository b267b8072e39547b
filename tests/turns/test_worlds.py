"""Kept turns of worlds: the ledger's steps are taken again in a new world; one that gives something else is refused."""

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_runs.turns.kept import TRACE, kept_turns
from opencode_simulation import Step, World, tool
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import WorldError
from opencode_simulation.ledger import LEDGER_KEY
from rollout_sandbox.podman import PodmanConfig
from verifiers.v1.serve.delta import pack, unpack

from tests.support.podman import SUITES_IMAGE, base_image
from tests.support.replies import call
from tests.support.rows import write_rows
from tests.turns.playing import play, text

SLIPPERY = {"id": "lake", "seed": 3, "config": {"map": ["SFFF", "FFFF", "FFFF", "FFFG"]}}
SCRIPT = [*(call("frozen_lake_move", direction=way) for way in ("right", "down", "right")), Reply(text="I stop.")]


def config(dataset: Path, keep: Path | None = None, server: str = "rollout", image: str = "") -> OpenCodeEnvConfig:
    """The frozen lake over a dataset, in the confined sandbox or in a container of an image."""
    task = {"world": "frozen-lake", "server": server}
    taskset = {"id": "opencode-simulation", "dataset": str(dataset), "task": task}
    turns = {} if keep is None else {"turns": {"keep": str(keep)}}
    agent = {"agent": {"runtime": PodmanConfig(image=image).model_dump()}} if image else {}
    return OpenCodeEnvConfig.model_validate({"taskset": taskset, **turns, **agent})


def change_observation(place: Path) -> None:
    """Let a kept turn say that the world's second step has given something else."""
    state = unpack((place / TRACE).read_bytes())
    state["info"][LEDGER_KEY]["steps"][1]["observation"] = "You are on the moon."
    (place / TRACE).write_bytes(pack(state))


async def require_same_world(kept: Path, server: str, image: str = "") -> None:
    """A branch of the third turn goes on in a world that has taken the same steps; one with other observations is an
    error that names the step."""
    rows = write_rows(kept.parent / "rows.jsonl", [SLIPPERY])
    trunk = await play(config(rows, kept, server, image), ScriptPolicy.of(*SCRIPT))
    (trace,) = trunk.traces
    assert trace.ok, trace.errors
    turns = list(kept_turns(kept))
    assert [(turn.turn, turn.unrestorable) for turn in turns] == [(at, None) for at in (1, 2, 3, 4)]
    asked = [text(body) for body in trunk.bodies(trace)]
    branches = await play(config(turns[2].place, None, server, image), ScriptPolicy.of(*SCRIPT))
    (branch,) = branches.traces
    assert branch.ok, branch.errors
    assert [text(body) for body in branches.bodies(branch)] == asked[2:]
    assert branch.info["branch"]["same_request"] is True
    assert branch.info[LEDGER_KEY] == trace.info[LEDGER_KEY]
    assert branch.reward == trace.reward

    change_observation(turns[2].place)
    refused = await play(config(turns[2].place, None, server, image), ScriptPolicy.of(*SCRIPT))
    (other,) = refused.episodes[0].traces
    assert not other.ok
    assert other.errors[0].type == "WorldError"
    assert re.search(r"step 2 \(frozen_lake_move\)|step 2 \(move\)", other.errors[0].message), other.errors[0].message
    assert not refused.requests


@pytest.mark.usefixtures("light_but_in_whole")
@pytest.mark.parametrize("server", ["rollout", "shared"])
async def test_a_branch_goes_on_in_a_world_that_has_taken_the_same_steps(server: str, tmp_path: Path) -> None:
    await require_same_world(tmp_path / "kept", server)


@pytest.mark.podman
@pytest.mark.usefixtures("podman_image", "light_but_in_whole")
async def test_a_branch_in_another_container_goes_on_in_such_a_world_too(tmp_path: Path) -> None:
    await require_same_world(tmp_path / "kept", "rollout", base_image(SUITES_IMAGE))


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
