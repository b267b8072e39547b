"""Worlds that fail: each failure is a typed error that says what happened, and touches no other world."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import MCPError
from mcp.client.client import Client
from opencode_simulation import WorldError
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import BrokenWorldError
from opencode_simulation.hub import hub
from opencode_simulation.reference import find_world
from opencode_simulation.task import SimulationTaskConfig
from opencode_simulation.toolset import SimulationToolsetConfig
from pydantic import ValidationError

from tests.simulation.served import SharedWorlds, post, server_processes, shared_worlds, text
from tests.support.machine import patience

pytestmark = pytest.mark.asyncio(loop_scope="module")


def peak_bytes(pid: int) -> int:
    """The most memory that a process has ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(programs: None) -> AsyncIterator[SharedWorlds]:
    """One server for the whole module; nothing that a world does wrong may end it, but for what ends the process."""
    async with shared_worlds("odd_worlds:Bare") as served:
        yield served


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "world Bare: tool act: ZeroDivisionError: by zero"),
        ("hangs", r"world Bare: tool act: did not return within \S+ s \(call_timeout\)"),
        ("no json", "world Bare: tool act: TypeError: the observation is not JSON"),
        ("no number", "world Bare: tool act: gave a step whose reward is wrong"),
        ("text", "world Bare: tool act: TypeError: the reward is not a number but str"),
        ("no end", "world Bare: tool act: TypeError: terminated is neither true nor false but str"),
    ],
)
async def test_a_step_that_fails_ends_the_episode_as_an_error(bare: SharedWorlds, how: str, message: str) -> None:
    limits: dict[str, Any] = {"step_timeout": patience(1.0)} if how == "hangs" else {}
    seat, beside = await bare.seat(**limits), await bare.seat()
    async with Client(seat.url) as client, Client(beside.url) as other:
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


@pytest.mark.parametrize("depth", [60, 150, 185, 190, 250])
async def test_what_is_nested_deep_touches_no_neighbour_and_fails_no_world(bare: SharedWorlds, depth: int) -> None:
    seat, beside = await bare.seat(), await bare.seat()
    words: list[object] = []
    for _ in range(depth):
        words = [words]
    async with Client(seat.url) as client, Client(beside.url) as other:
        with contextlib.suppress(MCPError):
            await client.call_tool("quote", {"words": words})
        assert text(await other.call_tool("act", {"how": "well"})) == "well done"
    assert (await seat.finish()).summary.error is None
    assert len((await beside.finish()).steps) == 1


async def test_a_failure_that_quotes_megabytes_is_told_in_short(bare: SharedWorlds) -> None:
    seat = await bare.seat()
    async with Client(seat.url) as client:
        assert (await client.call_tool("quote", {"words": ["\x01" * 600_000], "fail": True})).is_error
    with pytest.raises(BrokenWorldError, match="KeyError") as failed:
        await seat.finish()
    assert len(str(failed.value)) < 3000


async def test_one_rollout_cannot_fill_the_server_that_it_shares(bare: SharedWorlds) -> None:
    seat, beside = await bare.seat(), await bare.seat()
    (pid,) = server_processes(bare)
    before = peak_bytes(pid)
    large = {"name": "act", "arguments": {"how": "well", "more": "x" * 4_000_000}}
    flooding = asyncio.gather(*(post(seat.url, number, "tools/call", **large) for number in range(64)))
    async with Client(beside.url) as other:
        assert text(await other.call_tool("act", {"how": "well"})) == "well done"
    await flooding
    assert peak_bytes(pid) - before < 600 * 2**20  # without a gate: 800
    assert len((await seat.finish()).steps) == 64
    assert len((await beside.finish()).steps) == 1


@pytest.mark.parametrize(
    ("reset", "message"),
    [("raises", r"world Bare: reset\(\): OSError: no such lake"), ("hangs", r"reset\(\): did not return within 1 s")],
)
async def test_a_world_that_cannot_be_reset_says_why(bare: SharedWorlds, reset: str, message: str) -> None:
    with pytest.raises(WorldError, match=message) as failed:
        await bare.seat(config={"reset": reset}, step_timeout=1 if reset == "hangs" else 60)
    assert failed.type is WorldError


@pytest.mark.usefixtures("programs")
async def test_a_world_that_ends_its_process_is_an_error_of_all_who_shared_it() -> None:
    async with shared_worlds("odd_worlds:Bare") as served:
        beside = await served.seat()
        with pytest.raises(WorldError, match="the world's server died"):
            await served.seat(config={"reset": "dies"})
        with pytest.raises(BrokenWorldError, match="the world's server died"):
            await beside.finish()


async def test_a_seed_of_a_wrong_type_is_refused() -> None:
    for seed in ("seven", 1.5, True, 2**63):
        with pytest.raises(ValidationError, match=r"valid integer|less than"):
            EpisodeSpec(seed=seed)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no-such-world", "shipped are frozen-lake, issue-tracker"),
        ("odd_worlds:Nothing", "cannot be imported"),
        ("nowhere:World", "cannot be imported"),
        ("odd_worlds:InvalidAction", "is not a world"),
        ("opencode_simulation.world:World", "has no tool"),
    ],
)
async def test_a_world_that_there_is_not_says_what_to_write(reference: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_world(reference)
    with pytest.raises(ValidationError, match=message):
        SimulationTaskConfig(world=reference)


async def test_a_worlds_server_cannot_be_put_into_the_agents_sandbox() -> None:
    needed = {"world": "frozen-lake", "socket": "s", "token": "t"}
    for wrong in ({"colocated": True}, {"url": "http://127.0.0.1:1/mcp"}, {"runtime": {"type": "docker"}}):
        with pytest.raises(ValidationError, match="out of the agent's reach"):
            SimulationToolsetConfig.model_validate({**needed, **wrong})
