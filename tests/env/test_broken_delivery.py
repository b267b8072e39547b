"""Whatever breaks between the server and OpenCode: a call is sampled once, recorded once, and its tools run once."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import verifiers.v1.interception.server as verifiers_server
from opencode_env.cli_agent.interception import RoleInterceptionServer
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, Reply
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
    "before or in the answer": [
        *(Break(unsent=True), Break(0), Break(0, End.RESET)),
        *(Break(5), Break(0.15), Break(80, End.RESET)),
        *(Break(share, body=True) for share in (0, 1, 0.9)),
    ],
    "at the end, or silence": [
        *(Break(-2), Break(-1), Break(-1, End.RESET)),
        *(Break(0, End.STALLED), Break(0.5, End.STALLED, body=True), Break(-1, End.STALLED)),
    ],
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
    """A rollout for each of `BREAKS`, at once: nearly all of it is waiting for OpenCode to ask again."""

    async def play_all() -> list[tuple[Played, BrokenWire]]:
        last = Break(0.5, body=True)
        return await asyncio.gather(*(broken(breaks, last, harness=IMPATIENT) for breaks in BREAKS.values()))

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


@pytest.fixture(scope="module")
def kept_alive() -> Iterator[None]:
    """The server keeps a stream alive almost from its start, as it does when a model takes more than a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifiers_server, "KEEPALIVE_GRACE_SECONDS", 0.2)
        patch.setattr(verifiers_server, "KEEPALIVE_INTERVAL_SECONDS", 0.1)
        yield


LATE = Fault(kind=FaultKind.DELAY, seconds=1.5)


async def test_readers_that_leave_a_slow_model_get_its_answer_when_they_ask_again(kept_alive: None) -> None:
    """Behind keep-alives some bytes end the response that are not part of the answer; its event came before them."""
    breaks = [
        *(Break(early=True), Break(0.2, body=True), Break(-60), Break(-30)),
        *(Break(-3, End.STALLED), Break(-3), Break(-5, End.RESET), Break(-20, End.STALLED)),
    ]
    played, wire = await broken(breaks, Break(-3), harness=IMPATIENT, faults=[LATE])
    assert_cost_nothing(played, wire, range(len(breaks)))
    assert played.trace.metrics["ghost_answers"] == 0.0
    assert wire.answers[0].endswith(b"\r\n0\r\n\r\n")
    assert all(b": keepalive" in answer for answer in wire.answers)


KINDS = ("cut", "no_finish", "malformed_sse", "sse_error")


@pytest.fixture(scope="module")
def failures(kept_alive: None) -> Played:
    """Each failure at once and behind keep-alives; then an empty answer, which OpenCode does not send back."""
    early = [counting(number, fault(kind, attempts=1)) for number, kind in enumerate(KINDS)]
    late = LATE.model_copy(update={"attempts": 1})
    behind = [counting(number, (late, *fault(kind, attempts=1))) for number, kind in enumerate(KINDS, len(KINDS))]
    script = [*early, *behind]
    left = [Reply(finish_reason="tool_calls"), Reply(text=FINAL)]

    async def run() -> Played:
        def policy(request: ChatRequest) -> Reply:
            return script[request.turn] if request.turn < len(script) else left.pop(0)

        async with RoleInterceptionServer(InterceptionServerConfig()) as server:
            return await play(Confined(), policy, interception=server, after=RUNS)

    return asyncio.run(run())


def test_each_failure_is_one_that_opencode_tries_again_also_behind_keep_alives(failures: Played) -> None:
    trace, number = failures.trace, 2 * len(KINDS)
    assert trace.ok, trace.errors
    assert (trace.num_turns, trace.last_reply) == (number + 2, FINAL)
    assert trace.num_branches == 2  # the empty answer is one
    assert [call.error is None for call in trace.calls] == [*[False, True] * number, True, True]
    assert failures.seen.split() == [str(one) for one in range(number)]


def test_an_equal_question_of_the_next_step_is_asked_again(failures: Played) -> None:
    _, empty, again = failures.requests[-3:]
    assert empty.body == again.body
    assert failures.trace.metrics["repeated_calls"] == 0.0
