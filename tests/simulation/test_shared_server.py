"""Many worlds in one server process: apart from each other, in order, reachable by their own rollouts' URLs only."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from mcp.client.client import Client
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import WorldError
from opencode_simulation.hub import ServerHello, WorldReport, hub, line
from opencode_simulation.ledger import Ledger
from opencode_simulation.reference import SAMPLES

from tests.simulation import ledgers
from tests.simulation.served import SharedWorlds, post, server_processes, shared_worlds, text
from tests.simulation.wandering import played_alone, random_call
from tests.support.sizes import size
from tests.support.waiting import until

WORLDS = size(6, 256)
"""How many worlds play at once in the long test."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counters(programs: None) -> AsyncIterator[SharedWorlds]:
    """One server for the whole module: its start is what takes time."""
    async with shared_worlds("odd_worlds:Counter") as served:
        yield served


async def add(url: str, number: int, request_id: int | str, tool: str = "add") -> str:
    """The answer to one tool call."""
    return (await post(url, request_id, "tools/call", name=tool, arguments={"number": number})).text


async def test_two_rollouts_of_one_seed_have_a_world_each(counters: SharedWorlds) -> None:
    first, second = await counters.seat(seed=5), await counters.seat(seed=5)
    async with Client(first.url) as one, Client(second.url) as other:
        assert text(await one.call_tool("add", {"number": 1})) == '{"total": 6}'
        assert text(await other.call_tool("add", {"number": 10})) == '{"total": 15}'
        assert text(await one.call_tool("add", {"number": 1})) == '{"total": 7}'
    found = await first.finish(), await second.finish()
    assert [[entry.reward for entry in ledger.steps] for ledger in found] == [[1.0, 1.0], [10.0]]
    assert [ledger.summary.first_observation for ledger in found] == [{"total": 5}] * 2


async def test_the_agent_sees_the_observation_and_nothing_else(counters: SharedWorlds) -> None:
    seat = await counters.seat(seed=5)
    answer = await add(seat.url, 3, 1)
    assert '{\\"total\\": 8}' in answer
    assert "secret" not in answer
    assert "reward" not in answer
    (entry,) = (await seat.finish()).steps
    assert (entry.arguments, entry.reward, entry.info) == ({"number": 3}, 3.0, {"secret": "seed 8"})


async def test_a_call_that_is_sent_again_is_one_step_and_has_one_answer(counters: SharedWorlds) -> None:
    seat = await counters.seat()
    answers = await asyncio.gather(*(add(seat.url, 2, 7) for _ in range(4)))
    assert len(set(answers)) == 1
    for number, request_id in ((2, 8), (2, "7"), (3, 7)):
        await add(seat.url, number, request_id)
    assert [entry.reward for entry in (await seat.finish()).steps] == [2.0, 2.0, 2.0, 3.0]


async def test_the_numbers_of_a_new_client_are_no_repetition(counters: SharedWorlds) -> None:
    seat = await counters.seat()
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "program", "version": "1"}}
    for _ in range(2):
        await post(seat.url, 0, "initialize", **greeting)
        await add(seat.url, 2, 1)
    assert len((await seat.finish()).steps) == 2


async def test_parallel_calls_of_one_world_are_taken_one_after_the_other(counters: SharedWorlds) -> None:
    seat = await counters.seat()
    await asyncio.gather(*(add(seat.url, 1, number, "add_later") for number in range(12)))
    ledger = await seat.finish()
    assert [entry.step for entry in ledger.steps] == list(range(1, 13))
    assert [entry.observation for entry in ledger.steps] == [{"total": total} for total in range(1, 13)]


async def test_what_comes_after_the_end_is_refused_and_changes_nothing(counters: SharedWorlds) -> None:
    seat = await counters.seat(config={"goal": 3})
    async with Client(seat.url) as client:
        await client.call_tool("add", {"number": 3})
        assert hub().over(seat.rollout)
        late = await client.call_tool("add", {"number": 1})
        assert late.is_error
        assert "the episode is over" in text(late)
    ledger = await seat.finish()
    assert (len(ledger.steps), ledger.summary.terminated, ledger.summary.refused) == (1, True, 1)


async def test_a_call_that_makes_no_sense_is_no_step(counters: SharedWorlds) -> None:
    seat = await counters.seat()
    async with Client(seat.url) as client:
        refused = await client.call_tool("add", {"number": -1})
        assert (refused.is_error, "only up" in text(refused)) == (True, True)
        assert (await client.call_tool("add", {"number": "x"})).is_error
    ledger = await seat.finish()
    assert (ledger.steps, ledger.summary.refused) == ([], 1)


async def test_the_limit_of_steps_cuts_the_episode_off(counters: SharedWorlds) -> None:
    seat = await counters.seat(max_steps=2)
    async with Client(seat.url) as client:
        for _ in range(3):
            await client.call_tool("add", {"number": 1})
    ledger = await seat.finish()
    assert [(entry.terminated, entry.truncated) for entry in ledger.steps] == [(False, False), (False, True)]
    assert ledger.steps[-1].info["truncated_by"] == "max_steps"


async def test_resources_are_read_by_their_patterns_and_are_no_steps(counters: SharedWorlds) -> None:
    seat = await counters.seat(seed=6)
    async with Client(seat.url) as client:
        listed = [str(found.uri) for found in (await client.list_resources()).resources]
        patterns = [found.uri_template for found in (await client.list_resource_templates()).resource_templates]
        total = await client.read_resource("counter://total")
        multiple = await client.read_resource("counter://multiples/7")
    assert (listed, patterns) == (["counter://total"], ["counter://multiples/{factor}"])
    assert total.contents[0].text == "6"  # type: ignore[union-attr]
    assert "42" in multiple.contents[0].text  # type: ignore[union-attr]
    assert (await seat.finish()).steps == []


async def test_a_url_without_a_right_signature_leads_to_no_world(counters: SharedWorlds) -> None:
    mine, others = await counters.seat(seed=1), await counters.seat(seed=2)
    bare = mine.url.partition("?")[0]
    forged = mine.url.replace(mine.rollout, others.rollout)
    doubled = f"{mine.url}&vf_state_route={others.rollout}"
    for url in (bare, forged, doubled, f"{bare}?vf_state_route={others.rollout}"):
        assert "there is no world at this address" in await add(url, 1, 1)
    for path in ("/", "/state", "/task", "/ledger", "/control/reward", "/mcp/reset"):
        assert (await post(bare.removesuffix("/mcp") + path, 0, "initialize")).status_code == 404
    assert [(await seat.finish()).steps for seat in (mine, others)] == [[], []]


async def test_an_unauthenticated_request_is_not_heard_by_the_environment(counters: SharedWorlds) -> None:
    seat = await counters.seat()
    reader, writer = await asyncio.open_unix_connection(hub().path)
    forged = ledgers.entry("add", reward=9.0, terminated=True)
    hello = ServerHello(token="guessed", rollout=seat.rollout)
    writer.write(line(hello) + line(WorldReport(kind="stepped", rollout=seat.rollout, entry=forged)))
    assert await reader.read() == b""
    writer.close()
    assert Path(hub().path).parent.stat().st_mode & 0o077 == 0
    assert (await seat.finish()).steps == []


async def wander(world: str, url: str, source: random.Random, calls: int) -> None:
    """Random calls, until the episode is over."""
    async with Client(url) as client:
        for _ in range(calls):
            tool, arguments = random_call(world, source)
            answer = await client.call_tool(tool, arguments)
            if answer.is_error and "the episode is over" in text(answer):
                return


async def assert_a_death_is_told(served: SharedWorlds) -> None:
    """A server that dies is an error, and what it gave before is kept."""
    kept: list[Ledger] = []
    seat = await served.seat(changed=kept.append, seed=4, config={"slippery": False})
    async with Client(seat.url) as client:
        await client.call_tool("move", {"direction": "up"})
    (pid,) = server_processes(served)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: hub().over(seat.rollout))
    with pytest.raises(WorldError, match="server died"):
        await seat.finish()
    assert [entry.tool for entry in kept[-1].steps] == ["move"]


@pytest.mark.parametrize("world", sorted(SAMPLES))
@pytest.mark.usefixtures("programs")
async def test_many_worlds_at_once_are_each_what_they_are_alone_and_outlive_the_server_as_far_as_they_came(
    world: str,
) -> None:
    config = {"size": 5} if world == "frozen-lake" else {"issues": 12}
    specs = [EpisodeSpec(seed=number // 2, config=config, max_steps=20) for number in range(WORLDS)]
    async with shared_worlds(world) as served:
        seats = [await served.seat(**spec.model_dump()) for spec in specs]
        await asyncio.gather(*(wander(world, seat.url, random.Random(n), 50) for n, seat in enumerate(seats)))
        found = [await seat.finish() for seat in seats]
        if world == "frozen-lake":
            await assert_a_death_is_told(served)
    assert sum(len(ledger.steps) for ledger in found) > WORLDS
    compared = {"first_observation", "total_reward", "terminated", "truncated", "error"}
    for spec, ledger in zip(specs, found, strict=True):
        alone = await played_alone(world, spec, ((entry.tool, entry.arguments) for entry in ledger.steps))
        assert alone.steps == ledger.steps
        assert alone.summary.model_dump(include=compared) == ledger.summary.model_dump(include=compared)
