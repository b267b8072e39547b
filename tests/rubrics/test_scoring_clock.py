"""The time of a scoring: what it takes counts, what it waits for a place in the pool does not."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from rollout_sandbox.errors import ScoringTimeout
from rollout_sandbox.toolbox.scoring import Scoring


async def _runs(seconds: float, body: Callable[[], Awaitable[object]], scoring: Scoring | None = None) -> None:
    async with (scoring or Scoring()).time(seconds):
        await body()


async def _fails() -> None:
    raise TimeoutError("its own")


async def test_a_scoring_that_takes_too_long_is_told_from_its_own_timeouts() -> None:
    with pytest.raises(ScoringTimeout, match=r"longer than 0\.05 s"):
        await _runs(0.05, asyncio.Event().wait)
    with pytest.raises(TimeoutError, match="its own"):
        await _runs(60, _fails)
    async with Scoring().time(None):
        await asyncio.sleep(0)


async def test_the_clock_stands_still_from_the_first_who_waits_to_the_last() -> None:
    scoring = Scoring()

    async def waits(seconds: float) -> None:
        with scoring.not_counted():
            await asyncio.sleep(seconds)

    async with scoring.time(0.6), asyncio.TaskGroup() as group:
        for seconds in (0.8, 0.1, 1.0):
            group.create_task(waits(seconds))

    async def waits_and_works() -> None:
        await waits(0.3)
        await asyncio.Event().wait()

    with pytest.raises(ScoringTimeout):
        await _runs(0.2, waits_and_works, scoring)


async def test_a_scoring_says_whether_programs_used_its_time() -> None:
    scoring = Scoring()

    async def runs_one(seconds: float) -> None:
        with scoring.agents_time():
            await asyncio.sleep(seconds)

    async def one_to_the_end() -> None:
        await asyncio.sleep(0.02)
        await runs_one(60)

    async def one_for_most_of_it() -> None:
        await asyncio.gather(runs_one(0.15), runs_one(0.12))
        await asyncio.Event().wait()

    async def one_for_a_moment() -> None:
        await runs_one(0.0)
        await asyncio.Event().wait()

    for body, in_programs in ((one_to_the_end, True), (one_for_most_of_it, True), (one_for_a_moment, False)):
        with pytest.raises(ScoringTimeout) as raised:
            await _runs(0.2, body, scoring)
        assert raised.value.agents is in_programs
