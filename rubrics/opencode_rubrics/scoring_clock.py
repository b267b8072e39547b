"""The time that scoring one rollout may take, in which waiting for a place among others does not count.

Invariant: however many parts of a scoring wait at once, its clock stands still from the first to the last of them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar


class ScoringTimeout(Exception):
    """The time was over."""


class _Clock:
    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._waiting = 0
        self._left = 0.0

    def stop(self) -> None:
        when = self._limit.when()
        if self._waiting == 0 and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._limit.reschedule(None)
        self._waiting += 1

    def go_on(self) -> None:
        self._waiting -= 1
        if self._waiting == 0 and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)


_clock: ContextVar[_Clock | None] = ContextVar("opencode_rubrics_scoring_clock", default=None)


@asynccontextmanager
async def scoring_time(seconds: float | None) -> AsyncIterator[None]:
    """Let the body take so many seconds, without what it waits in `not_counted`; None is no limit.

    Raises:
        ScoringTimeout: it took longer.
    """
    if seconds is None:
        yield
        return
    try:
        async with asyncio.timeout(seconds) as limit:
            token = _clock.set(_Clock(limit))
            try:
                yield
            finally:
                _clock.reset(token)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ScoringTimeout(f"scoring took longer than {seconds:g} s") from error


@contextmanager
def not_counted() -> Iterator[None]:
    """Stop the clock of the scoring that runs here, if it has one."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    clock.stop()
    try:
        yield
    finally:
        clock.go_on()
