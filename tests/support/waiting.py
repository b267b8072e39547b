"""Waiting for what shall come true. No test waits for a time: on a busy machine it is too short, else it is wasted."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rollout_sandbox.conformance.subject import PATIENCE_SECONDS, pause_after, until

__all__ = ["PATIENCE_SECONDS", "cancelled", "settled", "until", "wait_until", "within_a_limit"]

T = TypeVar("T")


def wait_until(condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """`until` for tests without an event loop.

    Raises:
        TimeoutError: it was not within `seconds`.
    """
    deadline = time.monotonic() + seconds
    began = time.monotonic()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {seconds:g} s")
        time.sleep(pause_after(time.monotonic() - began))
        began = time.monotonic()


async def within_a_limit(play: Callable[[float], Awaitable[T]], happened: Callable[[T], object]) -> T:
    """What `play` gives under a time limit (s) in which the subject of the test has happened.

    The limit is short, and grows where a busy machine did not come as far as that in it.
    """
    for limit in (6.0, 24.0):
        played = await play(limit)
        if happened(played):
            return played
    return await play(96.0)


async def cancelled(work: Awaitable[object], when: Callable[[], object] | None = None) -> None:
    """Cancel a coroutine, or what runs already, once a condition holds, and wait for its end, whatever that is."""
    running = asyncio.ensure_future(work)
    try:
        if when is not None:
            await until(when)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def settled(value: Callable[[], object], *, seconds: float = 0.5) -> None:
    """Return once `value()` has been the same for `seconds`, watched all the while.

    Raises:
        TimeoutError: it never was for so long.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        last, looks = value(), 0
        # Looks are counted and not the clock read: a process that did not run has seen nothing settle.
        while looks < seconds / 0.02:
            await asyncio.sleep(0.02)
            now = value()
            looks = looks + 1 if now == last else 0
            last = now
