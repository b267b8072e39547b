"""Whatever breaks between the server and OpenCode: a call is sampled once, recorded once, and its tools run once."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import verifiers.v1.interception.server as verifiers_server
from opencode_env.cli_agent.interception import RoleInterceptionServer
from opencode_env.scripted_model import Fault, FaultKind, Reply
from verifiers.v1.interception import InterceptionServerConfig

from tests.support.broken_wire import Break, BrokenWire, End, broken_wire
from tests.support.places import Confined
from tests.support.replies import bash, fault
from tests.support.rollouts import Played, play
from tests.support.sizes import WHOLE

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

IMPATIENT = {
    "opencode_config": {"provider": {"intercepted": {"options": {"headerTimeout": 8000, "chunkTimeout": 2000}}}}
}
"""Gives a silent connection up early; the answers of these tests come at once."""

BREAKS = {
    "before the server": [Break(unsent=True)],
    "before the answer": [Break(0), Break(0, End.RESET)],
    "in the head": [Break(5), Break(0.15), Break(80, End.RESET)],
    "in the answer": [Break(share, body=True) for share in (0, 1, 0.1, 0.5, 0.9)],
    "at the end": [Break(-2), Break(-1), Break(-1, End.RESET)],
    "silence": [Break(0, End.STALLED), Break(0.5, End.STALLED, body=True), Break(-1, End.STALLED)],
}

RUNS = "cat /tmp/runs"
FINAL = "all is done now"


def counting(number: int, faults: Sequence[Fault] = ()) -> Reply:
    """A turn whose tool counts its own runs."""
    return bash(f"echo {number} >> /tmp/runs").model_copy(update={"faults": tuple(faults)})


@asynccontextmanager
async def wired(breaks: Sequence[Break]) -> AsyncIterator[tuple[RoleInterceptionServer, BrokenWire]]:
    """A server that agents reach over a broken wire."""
    async with (
        RoleInterceptionServer(InterceptionServerConfig()) as server,
        broken_wire(server.base_url, breaks) as wire,
    ):
        server.base_url = wire.url
        yield server, wire


async def broken(
    breaks: Sequence[Break],
    last: Break | None = None,
    *,
    harness: Mapping[str, Any] | None = None,
    faults: Sequence[Fault] = (),
) -> tuple[Played, BrokenWire]:
    """One rollout with a turn, and a tool that it runs, for each break, and a final answer that `last` breaks."""
    script = [*(counting(number, faults) for number in range(len(breaks))), Reply(text=FINAL, faults=tuple(faults))]
    async with wired([*breaks, *([last] if last else [])]) as (server, wire):
        played = await play(Confined(), script, interception=server, harness=harness, after=RUNS)
        return played, wire


def assert_cost_nothing(played: Played, wire: BrokenWire, runs: Sequence[int]) -> None:
    """Every break happened, and nothing of it is in the trace."""
    trace = played.trace
    assert trace.ok, trace.errors
    assert wire.breaks == []
    assert [int(line) for line in played.seen.split()] == list(runs)
    turns = len(set(runs)) + 1
    assert (len(played.requests), trace.num_turns, len(trace.calls), trace.num_branches) == (turns, turns, turns, 1)
    assert all(call.error is None for call in trace.calls)
    assert trace.last_reply == FINAL
    assert all("idempotency-key" not in request.headers for request in played.requests)


@pytest.fixture(scope="module")
def deliveries() -> dict[str, tuple[Played, BrokenWire]]:
    """A rollout for each of `BREAKS`, three at a time: nearly all of it is waiting for OpenCode to ask again."""
    places = asyncio.Semaphore(3)

    async def one(breaks: Sequence[Break]) -> tuple[Played, BrokenWire]:
        async with places:
            return await broken(breaks, Break(0.5, body=True), harness=IMPATIENT)

    async def play_all() -> list[tuple[Played, BrokenWire]]:
        return await asyncio.gather(*map(one, BREAKS.values()))

    return dict(zip(BREAKS, asyncio.run(play_all()), strict=True))


@pytest.mark.parametrize("where", BREAKS)
def test_a_broken_delivery_costs_nothing(deliveries: dict[str, tuple[Played, BrokenWire]], where: str) -> None:
    breaks = BREAKS[where]
    played, wire = deliveries[where]
    assert_cost_nothing(played, wire, range(len(breaks)))
    unsent = sum(planned.unsent for planned in breaks)
    assert played.trace.metrics["repeated_calls"] == len(breaks) + 1 - unsent
    assert played.trace.metrics["ghost_answers"] == 0.0


@pytest.mark.skipif(not WHOLE, reason="ten minutes: in `make test-whole`")
@pytest.mark.timeout(7200)
async def test_a_cut_at_any_byte_costs_nothing() -> None:
    _, wire = await broken([Break(0)])
    places = asyncio.Semaphore(6)

    async def swept(first: int) -> None:
        breaks = [Break(at) for at in range(first, min(first + 40, len(wire.answers[0]) - 2))]
        async with places:
            assert_cost_nothing(*await broken(breaks), range(len(breaks)))

    async with asyncio.TaskGroup() as sweeps:
        for first in range(0, len(wire.answers[0]) - 2, 40):
            sweeps.create_task(swept(first))


@pytest.fixture
def kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server keeps a stream alive almost from its start, as it does when a model takes more than a minute."""
    monkeypatch.setattr(verifiers_server, "KEEPALIVE_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(verifiers_server, "KEEPALIVE_INTERVAL_SECONDS", 0.1)


SLOW = fault("delay", seconds=1.5)


async def test_a_reader_that_leaves_a_slow_model_gets_its_answer_when_it_asks_again(kept_alive: None) -> None:
    breaks = [Break(early=True), Break(0.2, body=True), Break(-60), Break(-30)]
    played, wire = await broken(breaks, Break(early=True), faults=SLOW)
    assert_cost_nothing(played, wire, range(len(breaks)))
    assert b": keepalive" in wire.answers[0]


async def test_a_slow_answer_whose_last_bytes_are_lost_leaves_nothing_behind(kept_alive: None) -> None:
    """Behind keep-alives some bytes end the response that are not part of the answer; its event came before them."""
    breaks = [Break(-3, End.STALLED), Break(-3), Break(-5, End.RESET), Break(-20, End.STALLED)]
    played, wire = await broken(breaks, Break(-3), harness=IMPATIENT, faults=SLOW)
    assert_cost_nothing(played, wire, range(len(breaks)))
    assert played.trace.metrics["ghost_answers"] == 0.0
    assert wire.answers[0].endswith(b"\r\n0\r\n\r\n")


async def test_each_failure_behind_keep_alives_is_one_that_opencode_tries_again(kept_alive: None) -> None:
    kinds = ("cut", "no_finish", "malformed_sse", "sse_error")
    late = Fault(kind=FaultKind.DELAY, seconds=1.5, attempts=1)
    script = [counting(number, (late, *fault(kind, attempts=1))) for number, kind in enumerate(kinds)]
    async with RoleInterceptionServer(InterceptionServerConfig()) as server:
        played = await play(Confined(), [*script, Reply(text=FINAL)], interception=server, after=RUNS)
    trace = played.trace
    assert trace.ok, trace.errors
    assert (trace.num_turns, trace.num_branches, trace.last_reply) == (len(kinds) + 1, 1, FINAL)
    assert [call.error is None for call in trace.calls] == [*[False, True] * len(kinds), True]
    assert played.seen.split() == ["0", "1", "2", "3"]


async def test_an_equal_question_of_the_next_step_is_asked_again() -> None:
    """OpenCode does not send an empty answer back, so the next step's request is the same to the byte."""
    left = [bash("echo 1"), Reply(finish_reason="tool_calls"), Reply(text=FINAL)]
    async with RoleInterceptionServer(InterceptionServerConfig()) as server:
        played = await play(Confined(), lambda request: left.pop(0), interception=server)
    assert played.trace.ok, played.trace.errors
    _, empty, again = played.requests
    assert empty.body == again.body
    assert played.trace.num_turns == 3
    assert played.trace.metrics["repeated_calls"] == 0.0
