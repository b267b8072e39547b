"""Has a Prime sandbox until it is interrupted."""

import asyncio

from rollout_sandbox.prime import provision_prime
from verifiers.v1.runtimes import PrimeConfig


async def hold() -> None:
    """Have one for ever."""
    async with provision_prime(PrimeConfig(), 60):
        await asyncio.Event().wait()


asyncio.run(hold())
