"""The time that scoring one rollout may take, in which waiting for a place among others does not count.

Invariant: however many parts of a scoring wait at once, its clock stands still from the first to the last of them; and
a scoring that took too long says whether programs used the time that may be the agent's.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar


class ScoringTimeout(Exception):
    """The time was over.

    Args:
        message: what took too long.
        in_programs: whether programs used it: one ran in the end, or they ran for half of it.
    """

    def __init__(self, message: str, *, in_programs: bool = False) -> None:
        super().__init__(message)
        self.in_programs = in_programs


class _Clock:
    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._waiting = 0
        self._left = 0.0
        self._running = 0
        self._started = 0.0
        self.in_programs = 0.0
        """Seconds in which at least one program ran."""
        self.cut = False
        """Whether one ran when the time was over."""

    def program_starts(self) -> None:
        if self._running == 0:
            self._started = asyncio.get_running_loop().time()
        self._running += 1

    def program_ends(self) -> None:
        self._running -= 1
        self.cut = self.cut or self._limit.expired()
        if self._running == 0:
            self.in_programs += asyncio.get_running_loop().time() - self._started

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
            clock = _Clock(limit)
            token = _clock.set(clock)
            try:
                yield
            finally:
                _clock.reset(token)
    except TimeoutError as error:
        if not limit.expired():
            raise
        used = clock.cut or clock.in_programs >= seconds / 2
        raise ScoringTimeout(f"scoring took longer than {seconds:g} s", in_programs=used) from error


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


@contextmanager
def program() -> Iterator[None]:
    """Count the time of a program that may run the agent's code, for the scoring that runs here, if it has a clock."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    clock.program_starts()
    try:
        yield
    finally:
        clock.program_ends()
