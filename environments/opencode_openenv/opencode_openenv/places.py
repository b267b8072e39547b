"""The places of a server: so many rollouts at once, so many waiting, and a refusal for whoever comes then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ServerFullError(Exception):
    """Nobody more may wait; the message says how many do."""


class Places:
    """First come, first served.

    Args:
        running: rollouts at once.
        waiting: callers that may wait for a place.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._running = running
        self._most_waiting = waiting
        self._free = asyncio.Semaphore(running)
        self.waiting = 0
        """Callers that wait now."""

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place until the end of the context.

        Raises:
            ServerFullError: all places are taken and as many wait as may.
        """
        if self._free.locked() and self.waiting >= self._most_waiting:
            raise ServerFullError(
                f"the server is full: {self._running} rollouts run and {self.waiting} callers wait; try again later, "
                "or start it with a larger --max-concurrent or --max-queued"
            )
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._free.release()
