"""When a rollout may ask Prime for its sandbox: there is a place, and it is its turn.

Invariant: what a rollout's own sandbox waits for here, no deadline counts. A second one, which scoring asks for, waits
for the creation rate within the time for scoring, and for no place.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from verifiers.v1.runtimes import PrimeConfig, RuntimeConfig
from verifiers.v1.runtimes.limiters import creation_limiter
from verifiers.v1.utils.scope import run_scope

from agent_sandbox.prime.limits import PrimeLimits
from agent_sandbox.prime.start_record import StartRecord


class Turns:
    """Those of one environment in one process."""

    def __init__(self, limits: PrimeLimits) -> None:
        self._limits = limits
        self._places = None if limits.max_sandboxes is None else asyncio.Semaphore(limits.max_sandboxes)

    @contextlib.asynccontextmanager
    async def turn(self, config: RuntimeConfig) -> AsyncIterator[StartRecord]:
        """Wait for the place of one rollout and hold it; nothing but a record where the seat is not Prime's."""
        record = StartRecord(self._limits)
        async with AsyncExitStack() as stack:
            if isinstance(config, PrimeConfig):
                if self._places is not None:
                    with record.waiting("place"):
                        await stack.enter_async_context(self._places)
                await _wait_for_rate(config, record)
            yield record


async def taken_turn(config: PrimeConfig, record: StartRecord | None) -> StartRecord:
    """The turn that a rollout waited for; a sandbox beside its first waits for the rate here."""
    if record is None or record.taken:
        record = StartRecord() if record is None else StartRecord(record.limits)
        await _wait_for_rate(config, record)
    record.taken = True
    return record


async def _wait_for_rate(config: PrimeConfig, record: StartRecord) -> None:
    """Wait as verifiers' own runtime would, in the same line."""
    limiter = creation_limiter((config.creates_per_min or 0) / 60, "prime-sandbox", run_scope())
    if limiter is not None:
        with record.waiting("rate"):
            async with limiter:
                pass
