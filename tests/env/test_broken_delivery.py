"""Whatever breaks between the server and OpenCode: a call is sampled once, recorded once, and its tools run once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import pytest_asyncio
import verifiers.v1.interception.server as verifiers_server
from opencode_env.cli_agent.interception_servers import role_server
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, Policy, Reply
from verifiers.v1.interception import InterceptionServerConfig

from tests.support.broken_wire import IMPATIENT, Break, BrokenWire, End, broken_wire
from tests.support.places import Confined
from tests.support.replies import bash, fault
from tests.support.rollouts import Played, play
from tests.support.sizes import WHOLE

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

BREAKS = [
    *(Break(unsent=True), Break(0), Break(0, End.RESET)),
    *(Break(5), Break(0.15), Break(80, End.RESET)),
    *(Break(share, body=True) for share in (0, 1, 0.9)),
]
"""Before or in the answer; `tests/rlm/test_broken_delivery.py` has its end, and silence."""

RUNS = "cat /tmp/runs"
FINAL = "all is done now"


def counting(number: int, faults: Sequence[Fault] = ()) -> Reply:
    """A turn whose tool counts its own runs."""
    return bash(f"echo {number} >> /tmp/runs").model_copy(update={"faults": tuple(faults)})


async def broken(
    breaks: Sequence[Break], script: Policy | Sequence[Reply] | None = None, **options: Any
) -> tuple[Played, BrokenWire]:
    """One rollout over a wire that breaks; with a turn, and a tool that it runs, for each break, and a final answer."""
    turns = [*map(counting, range(len(breaks))), Reply(text=FINAL)]
    async with (
        role_server(InterceptionServerConfig()) as server,
        broken_wire(server.base_url, breaks) as wire,
    ):
        server.base_url = wire.url
        return await play(Confined(), script or turns, interception=server, after=RUNS, **options), wire


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


LATE = Fault(kind=FaultKind.DELAY, seconds=1.5)
SLOW = [
    *(Break(early=True), Break(0.2, body=True), Break(-60), Break(-30), Break(-3)),
    *(Break(-3, End.STALLED), Break(-3), Break(-5, End.RESET), Break(-20, End.STALLED)),
]
"""While the model is slow: behind keep-alives some bytes end the response that are not part of the answer; its event
came before them."""
KINDS = ("cut", "no_finish", "malformed_sse", "sse_error")
FAILURES = [fault(kind, attempts=1) for kind in KINDS]
FAULTS = [*[[LATE]] * len(SLOW), *FAILURES, *((LATE.model_copy(update={"attempts": 1}), *one) for one in FAILURES)]
SCRIPT = [counting(number, given) for number, given in enumerate(FAULTS)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rollouts() -> list[tuple[Played, BrokenWire]]:
    """Two at once, as nearly all of each is waiting for OpenCode to ask again: one whose deliveries break, and one with
    a slow model, where then each failure comes at once and behind keep-alives, and an empty answer, which OpenCode does
    not send back.

    The server keeps a stream alive almost from its start, as it does when a model takes more than a minute.
    """
    left = [Reply(finish_reason="tool_calls"), Reply(text=FINAL)]

    def policy(request: ChatRequest) -> Reply:
        return SCRIPT[request.turn] if request.turn < len(SCRIPT) else left.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifiers_server, "KEEPALIVE_GRACE_SECONDS", 0.2)
        patch.setattr(verifiers_server, "KEEPALIVE_INTERVAL_SECONDS", 0.1)
        slow = broken(SLOW, policy, harness={"opencode_config": IMPATIENT})
        return [*await asyncio.gather(broken(BREAKS), slow)]


def test_a_broken_delivery_costs_nothing(rollouts: list[tuple[Played, BrokenWire]]) -> None:
    played, wire = rollouts[0]
    assert_cost_nothing(played, wire, range(len(BREAKS)))
    assert played.trace.metrics["repeated_calls"] == len(BREAKS) - sum(planned.unsent for planned in BREAKS)
    assert played.trace.metrics["ghost_answers"] == 0.0


def test_a_slow_models_readers_leave_and_ask_again_and_so_they_do_behind_each_failure(
    rollouts: list[tuple[Played, BrokenWire]],
) -> None:
    played, wire = rollouts[1]
    trace = played.trace
    assert trace.ok, trace.errors
    assert (trace.num_turns, trace.last_reply) == (len(SCRIPT) + 2, FINAL)
    assert trace.num_branches == 2  # the empty answer is one
    once, twice = [True] * len(SLOW), [False, True] * 2 * len(KINDS)
    assert [call.error is None for call in trace.calls] == [*once, *twice, True, True]
    assert played.seen.split() == [str(number) for number in range(len(SCRIPT))]
    assert wire.breaks == []
    assert wire.answers[0].endswith(b"\r\n0\r\n\r\n")
    assert all(b": keepalive" in answer for answer in wire.answers)
    _, empty, again = played.requests[-3:]
    assert empty.body == again.body
    # None for the equal question of the next step, which is asked again.
    assert trace.metrics["repeated_calls"] == len(SLOW)
    assert trace.metrics["ghost_answers"] == 0.0


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
