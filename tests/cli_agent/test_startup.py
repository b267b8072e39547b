"""An agent's program has a time for its first model call, and one more start; what called is never started again."""

import asyncio

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.classification import require_scorable
from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.runaway import run_started
from opencode_env.cli_agent.traces import AnyTrace
from rollout_sandbox.confined import BubblewrapBackend, LocalSandboxConfig
from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import ProgramResult

from tests.rubrics.conftest import trace_of
from tests.support.waiting import cancelled

ENDED = ProgramResult(0, "", "")


class Fence(ProcessFence):
    """Counts what it ends; the sandbox was never started."""

    def __init__(self, trace: AnyTrace, calls_as_it_ends: bool = False) -> None:
        super().__init__(BubblewrapBackend(LocalSandboxConfig()).bind())
        self.ended = 0
        self._called_at = trace if calls_as_it_ends else None

    async def end_run(self) -> None:
        self.ended += 1
        if self._called_at is not None:
            call(self._called_at)


def call(trace: AnyTrace) -> None:
    """A model call of the agent's program arrives."""
    rollout_of(trace).program.identify(None)


@pytest.fixture
def trace() -> AnyTrace:
    """Of a rollout whose agent is about to start."""
    made = trace_of(vf.TaskData(idx=0, prompt="x"))
    rollout_of(made).program.new_run()
    return made


async def test_a_program_that_called_has_all_the_time_for_the_rest(trace: AnyTrace) -> None:
    fence, over = Fence(trace), asyncio.Event()

    async def run(again: bool) -> ProgramResult:
        call(trace)
        await over.wait()
        return ENDED

    running = asyncio.ensure_future(run_started(run, trace, fence, 0.01))
    await asyncio.sleep(0.1)
    assert not running.done()
    over.set()
    assert (await running, fence.ended) == (ENDED, 0)


async def test_a_program_that_parks_is_cancelled_and_ended_before_it_is_started_again(trace: AnyTrace) -> None:
    fence, starts = Fence(trace), list[tuple[bool, int]]()

    async def run(again: bool) -> ProgramResult:
        starts.append((again, fence.ended))
        if not again:
            await asyncio.Event().wait()
        return ENDED

    assert await run_started(run, trace, fence, 0.01) == ENDED
    assert starts == [(False, 0), (True, 1)]


@pytest.mark.parametrize("late", [False, True])
async def test_a_program_that_parks_for_good_or_calls_too_late_is_an_error(trace: AnyTrace, late: bool) -> None:
    fence, starts = Fence(trace, calls_as_it_ends=late), list[bool]()

    async def run(again: bool) -> ProgramResult:
        starts.append(again)
        assert not (again and late), "it was started again, though it had called"
        await asyncio.Event().wait()
        return ENDED

    with pytest.raises(HarnessError, match="no model call within"):
        await run_started(run, trace, fence, 0.01)
    assert starts == ([False] if late else [False, True])
    assert fence.ended == len(starts)


async def test_a_failure_of_the_program_is_its_own_and_a_cancelled_rollout_starts_nothing(trace: AnyTrace) -> None:
    fence, starts = Fence(trace), list[bool]()

    async def fail(again: bool) -> ProgramResult:
        raise HarnessError("broken")

    async def park(again: bool) -> ProgramResult:
        starts.append(again)
        await asyncio.Event().wait()
        return ENDED

    with pytest.raises(HarnessError, match="broken"):
        await run_started(fail, trace, fence, 60.0)
    await cancelled(run_started(park, trace, fence, 60.0), lambda: starts)
    assert (starts, fence.ended) == ([False], 0)


@pytest.mark.parametrize("called", [False, True])
async def test_a_time_limit_that_ends_a_start_is_no_score(trace: AnyTrace, called: bool) -> None:
    async def run(again: bool) -> ProgramResult:
        if called:
            call(trace)
        await asyncio.Event().wait()
        return ENDED

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run_started(run, trace, Fence(trace), 60.0), 0.05)
    trace.stop("agent_timeout")
    if called:
        require_scorable(trace)
        return
    with pytest.raises(HarnessError, match="before its first model call"):
        require_scorable(trace)
