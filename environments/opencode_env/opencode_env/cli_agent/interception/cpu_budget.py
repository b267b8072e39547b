"""How much of the serving process one rollout's requests may take: its thread's time, and memory for their bodies.

Invariant: a rollout whose requests take less than its share never waits here; one that takes more waits by itself, and
before its bytes are read, so that the connection holds them back.
"""

import asyncio
import math
import time
from contextlib import ExitStack

from opencode_env.cli_agent.interception.call_slots import FirstCome

BURST_SECONDS = 1.0
"""Work that a rollout may have done at once after a pause."""

SECONDS_PER_BYTE = 2e-8
SECONDS_PER_ENTRY = 4e-5
"""What the engine's work on one request comes to: parsing, matching, hashing and sending, by byte and by message."""

SECONDS_PER_REFUSAL = 1e-3
"""What a request costs that comes to nothing, however small it is: nothing else holds back who sends many of them."""


class CpuBudget:
    """A budget of work that refills with time: `share` seconds of work per second; None means no limit."""

    def __init__(self, share: float | None) -> None:
        self._share = math.inf if share is None else share
        self._credit = BURST_SECONDS
        self._seen = time.monotonic()

    def charge(self, size: int, entries: int) -> None:
        """Count the work on a request of so many bytes and entries."""
        self._refill()
        self._credit -= size * SECONDS_PER_BYTE + entries * SECONDS_PER_ENTRY

    def charge_refusal(self) -> None:
        """Count the work on a request that is answered with an error."""
        self._refill()
        self._credit -= SECONDS_PER_REFUSAL

    async def turn(self) -> None:
        """Wait until what was charged has been worked off."""
        self._refill()
        while self._credit < 0:
            await asyncio.sleep(-self._credit / self._share)
            self._refill()

    def _refill(self) -> None:
        now = time.monotonic()
        gained = (now - self._seen) * self._share if now > self._seen else 0.0
        self._credit = min(BURST_SECONDS, self._credit + gained)
        self._seen = now


class Memory(FirstCome):
    """Bytes of request bodies that one rollout may hold at once (None: no limit), given out in the order of arrival."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self._free = self._size = math.inf if size is None else size

    async def hold(self, size: float, until_end: ExitStack) -> None:
        """Wait for so many bytes, at most all there are, and hold them until then."""
        size = min(size, self._size)
        await self._enter(size)
        until_end.callback(self._leave, size)

    def _take(self, amount: float) -> bool:
        fits = amount <= self._free
        self._free -= amount if fits else 0
        return fits

    def _put_back(self, amount: float) -> None:
        self._free += amount
