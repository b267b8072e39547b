"""When a rollout may ask Prime for its sandbox (there is a place, and it is its turn), and how that came about.

Invariant: what a rollout's own sandbox waits for here, no deadline counts. A second one, which scoring asks for, waits
for the creation rate within the time for scoring, and for no place.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, FiniteFloat
from pydantic_config import BaseConfig
from verifiers.v1.runtimes import PrimeConfig, RuntimeConfig
from verifiers.v1.runtimes.limiters import creation_limiter
from verifiers.v1.trace import Trace
from verifiers.v1.utils.scope import run_scope

logger = logging.getLogger("verifiers.v1.rollout_sandbox.prime")

_WORTH_SAYING_S = 1.0
_WORDS = {
    "place": "a place (--env.prime.max_sandboxes)",
    "rate": "its turn (--env.agent.runtime.creates_per_min)",
    "refused": "the platform, which refused to create it for now (429)",
}


class PrimeLimits(BaseConfig):
    """Bounds of one process (each worker of an environment server is one); how fast a whole run creates sandboxes is
    `--env.<seat>.runtime.creates_per_min`."""

    max_sandboxes: int | None = Field(None, ge=1)
    """Sandboxes of rollouts at once; further rollouts wait for a place, which no deadline counts. None is as many as
    rollouts are played at once. Second sandboxes that scoring asks for come on top, so that none waits for another."""
    max_connections: int = Field(1000, ge=1)
    """Connections to the platform, and as many to its gateway's files. Each running command has one of its own on top.
    The first environment of a process decides."""
    creation_patience: FiniteFloat = Field(600.0, ge=0)
    """Seconds for which the creation of a sandbox is tried again while the platform answers that there are too many
    requests or sandboxes (429), within the time for setup."""


@dataclass
class StartRecord:
    """The start of one sandbox; `put_on` shows it as `trace.info["agent"]["sandbox"]`."""

    limits: PrimeLimits = field(default_factory=PrimeLimits)
    waited: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_WORDS, 0.0))
    """Seconds, by what it waited for: a `place`, the creation `rate`, or the platform, which `refused` it for now."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of the platform: `create` until the sandbox had an id, `ready` from then until it took commands."""
    taken: bool = False
    """Whether a sandbox started with it."""
    unclear: int = 0
    """Requests for it that were sent and not surely refused: each may have made it."""
    created_at: float = 0.0
    """When it had an id, by the monotonic clock."""
    _refused_at: float | None = None

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Count the time of the body as waiting, and say so in the log when it was long."""
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.waited[what] += seconds
            if seconds >= _WORTH_SAYING_S:
                logger.info("a Prime sandbox waited %.1f s for %s", seconds, _WORDS[what])

    def refused(self) -> None:
        """A request for the sandbox was refused for now; it waits from here."""
        if self._refused_at is None:
            logger.warning("Prime refuses to create a sandbox for now (429): too many requests or sandboxes; waiting")
        self._refused_at = time.monotonic()

    def asked(self) -> None:
        """The sandbox is asked for, again perhaps."""
        if self._refused_at is not None:
            self.waited["refused"] += time.monotonic() - self._refused_at
            self._refused_at = None

    def put_on(self, trace: Trace[Any, Any, Any]) -> None:
        """Record it on the trace, if there was such a sandbox."""
        if self.seconds:
            shown = {"waited": _rounded(self.waited), "seconds": _rounded(self.seconds)}
            trace.info.setdefault("agent", {})["sandbox"] = shown


class Turns:
    """The places of one environment in one process."""

    def __init__(self, limits: PrimeLimits) -> None:
        self._limits = limits
        self._places = None if limits.max_sandboxes is None else asyncio.Semaphore(limits.max_sandboxes)

    @contextlib.asynccontextmanager
    async def turn(self, config: RuntimeConfig) -> AsyncIterator[StartRecord]:
        """Wait for the place of one rollout and hold it; nothing but a record where the seat is not Prime's."""
        record = StartRecord(self._limits)
        async with contextlib.AsyncExitStack() as stack:
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


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}
