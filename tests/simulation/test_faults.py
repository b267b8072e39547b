"""Worlds that fail: each failure is a typed error that says what happened, and touches no other world."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from opencode_env.simulation import WorldError
from opencode_env.simulation.config import SimulationTaskConfig
from opencode_env.simulation.episode import EpisodeSpec
from opencode_env.simulation.errors import BrokenWorldError
from opencode_env.simulation.hub import hub
from opencode_env.simulation.reference import find_world
from opencode_env.simulation.toolset import SimulationToolsetConfig
from pydantic import ValidationError

from tests.simulation.served import SharedWorlds, agent, shared_worlds, text

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare() -> AsyncIterator[SharedWorlds]:
    """One server for the whole module; nothing that a world does wrong may end it, but for what ends the process."""
    async with shared_worlds("odd_worlds:Bare") as served:
        yield served


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "world Bare: tool act: ZeroDivisionError: by zero"),
        ("hangs", r"world Bare: tool act: did not return within 1 s \(call_timeout\)"),
        ("no json", "world Bare: tool act: TypeError: the observation is not JSON"),
        ("no number", "world Bare: tool act: gave a step whose reward is wrong"),
    ],
)
async def test_a_step_that_fails_ends_the_episode_as_an_error(bare: SharedWorlds, how: str, message: str) -> None:
    seat, beside = await bare.seat(call_timeout=1), await bare.seat()
    async with agent(seat.url) as client, agent(beside.url) as other:
        assert text(await client.call_tool("act", {"how": "well"})) == "well done"
        failed = await client.call_tool("act", {"how": how})
        assert (failed.is_error, "the simulation has failed" in text(failed)) == (True, True)
        assert "Zero" not in text(failed)
        assert hub().over(seat.rollout)
        assert (await client.call_tool("act", {"how": "well"})).is_error
        assert text(await other.call_tool("act", {"how": "well"})) == "well done"
    with pytest.raises(BrokenWorldError, match=message):
        await seat.finish()
    assert len((await beside.finish()).steps) == 1


@pytest.mark.parametrize(
    ("reset", "message"),
    [("raises", r"world Bare: reset\(\): OSError: no such lake"), ("hangs", r"reset\(\): did not return within 1 s")],
)
async def test_a_world_that_cannot_be_reset_says_why(bare: SharedWorlds, reset: str, message: str) -> None:
    with pytest.raises(WorldError, match=message) as failed:
        await bare.seat(config={"reset": reset}, call_timeout=1)
    assert failed.type is WorldError


async def test_a_world_that_ends_its_process_is_an_error_of_all_who_shared_it() -> None:
    async with shared_worlds("odd_worlds:Bare") as served:
        beside = await served.seat()
        with pytest.raises(WorldError, match="the world's server died"):
            await served.seat(config={"reset": "dies"})
        with pytest.raises(BrokenWorldError, match="the world's server died"):
            await beside.finish()


async def test_a_seed_of_a_wrong_type_is_refused() -> None:
    for seed in ("seven", 1.5, True):
        with pytest.raises(ValidationError, match="valid integer"):
            EpisodeSpec(seed=seed)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no-such-world", "shipped are frozen-lake, issue-tracker"),
        ("odd_worlds:Nothing", "cannot be imported"),
        ("nowhere:World", "cannot be imported"),
        ("odd_worlds:InvalidAction", "is no world"),
        ("opencode_env.simulation.world:World", "has no tool"),
    ],
)
async def test_a_world_that_there_is_not_says_what_to_write(reference: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_world(reference)
    with pytest.raises(ValidationError, match=message):
        SimulationTaskConfig(world=reference)


async def test_a_worlds_server_cannot_be_put_into_the_agents_sandbox() -> None:
    needed = {"world": "frozen-lake", "name": "lake", "socket": "s", "token": "t"}
    for wrong in ({"colocated": True}, {"url": "http://127.0.0.1:1/mcp"}, {"runtime": {"type": "docker"}}):
        with pytest.raises(ValidationError, match="out of the agent's reach"):
            SimulationToolsetConfig.model_validate({**needed, **wrong})
