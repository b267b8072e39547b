"""Waiting for what shall come true: on a busy machine any fixed time is too short."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 300.0
"""After so long a condition counts as never met: far more than it takes anywhere, as only a failure waits for it."""


async def until(condition: Callable[[], object | Awaitable[object]], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Return once `condition()`, which may be a coroutine, is true.

    Raises:
        TimeoutError: it was not within `seconds`.
    """
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.02)
