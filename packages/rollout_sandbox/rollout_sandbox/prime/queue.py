"""When a rollout may ask Prime for its sandbox (there is a place, and the rate allows it), and the client that asks.

What a rollout's own sandbox waits for here, no deadline counts. A second one, which scoring asks for, waits for the
creation rate within the time for scoring, and for no place.

The SDK takes a bound from whoever makes the client, which is verifiers, and for the gateway only; its waits after a 429
are seen at the public hooks of its HTTP client; and each request overrules its timeouts with none (0.5.1).
"""

import asyncio
import contextlib
import copy
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import httpx
from prime_sandboxes import AsyncSandboxClient
from pydantic import Field, FiniteFloat
from pydantic_config import BaseConfig
from verifiers.v1.runtimes import PrimeConfig, RuntimeConfig
from verifiers.v1.runtimes.limiters import creation_limiter
from verifiers.v1.trace import Trace
from verifiers.v1.utils.scope import run_scope

from rollout_sandbox.compat import limit_connections
from rollout_sandbox.prime.sdk_errors import TOO_MANY, surely_refused

logger = logging.getLogger("verifiers.v1.rollout_sandbox.prime")

_WORTH_SAYING_S = 1.0
_WORDS = {
    "place": "a place (--env.prime.max_sandboxes)",
    "rate": "the creation rate (--env.agent.runtime.creates_per_min)",
    "refused": "the platform, which refused to create it for now (429)",
}


class PrimeLimits(BaseConfig):
    """Bounds of one process; how fast a whole run creates sandboxes is `--env.<seat>.runtime.creates_per_min`."""

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
    """The start of one sandbox; `note_on` shows it as `trace.info["agent"]["sandbox"]`."""

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

    def note_on(self, trace: Trace[Any, Any, Any]) -> None:
        """Record it on the trace, if there was such a sandbox."""
        if self.seconds:
            shown = {"waited": _rounded(self.waited), "seconds": _rounded(self.seconds)}
            trace.info.setdefault("agent", {})["sandbox"] = shown


class PrimeQueue:
    """The places of one environment in one process."""

    def __init__(self, limits: PrimeLimits) -> None:
        self._limits = limits
        self._places = None if limits.max_sandboxes is None else asyncio.Semaphore(limits.max_sandboxes)

    @contextlib.asynccontextmanager
    async def place(self, config: RuntimeConfig) -> AsyncIterator[StartRecord]:
        """Wait for the place of one rollout and hold it; nothing but a record where the seat is not Prime's."""
        record = StartRecord(self._limits)
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(config, PrimeConfig):
                if self._places is not None:
                    with record.waiting("place"):
                        await stack.enter_async_context(self._places)
                await _wait_for_rate(config, record)
            yield record


async def waited_place(config: PrimeConfig, record: StartRecord | None) -> StartRecord:
    """The place that a rollout waited for; a sandbox beside its first waits for the rate here."""
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


_MOST_KEPT = 200
"""Connections that stay open while they are idle, as the SDK has it."""

_ANSWER = httpx.Timeout(120.0, connect=10.0)
"""For one answer of the platform, and for a connection to it."""
_SENT = "send_request_headers.started"
"""How the event ends after which a request may have done something; a connection that cannot be made comes before."""

_PREPARED: WeakSet[AsyncSandboxClient] = WeakSet()
_RECORD = "start_record"
"""Extension of a request with the record of the sandbox that it asks for."""


class _Recorded:
    """The SDK's HTTP client, whose requests are recorded as those for one sandbox."""

    def __init__(self, inner: httpx.AsyncClient, record: StartRecord) -> None:
        self._inner = inner
        self._record = record

    async def request(self, *arguments: Any, **options: Any) -> httpx.Response:
        return await self._inner.request(*arguments, **options, extensions={_RECORD: self._record})


def recorded(client: AsyncSandboxClient, record: StartRecord) -> AsyncSandboxClient:
    """The same client for the creation of one sandbox, whose requests, and the waits between them, are recorded."""
    copied = copy.copy(client)
    copied.client = copy.copy(client.client)
    inner: Any = _Recorded(client.client.client, record)
    copied.client.client = inner
    return copied


def prepare(client: AsyncSandboxClient, most: int) -> None:
    """Bound and watch a client that has not made a connection yet; without effect on one that is prepared."""
    if client in _PREPARED:
        return
    _PREPARED.add(client)
    kept = min(most, _MOST_KEPT)
    limit_connections(client, most, kept)
    made = client.client.client
    client.client.client = httpx.AsyncClient(
        headers=made.headers,
        follow_redirects=made.follow_redirects,
        timeout=made.timeout,
        limits=httpx.Limits(max_connections=most, max_keepalive_connections=kept),
        event_hooks={"request": [_asking], "response": [_answered]},
    )


async def _asking(request: httpx.Request) -> None:
    request.extensions["timeout"] = _ANSWER.as_dict()
    if (record := request.extensions.get(_RECORD)) is None:
        return
    record.asked()
    sent = False

    async def watch(event: str, _: Any) -> None:
        nonlocal sent
        if not sent and event.endswith(_SENT):
            sent = True
            record.unclear += 1

    request.extensions["trace"] = watch


async def _answered(response: httpx.Response) -> None:
    if (record := response.request.extensions.get(_RECORD)) is None:
        return
    if surely_refused(response.status_code):
        record.unclear -= 1
    if response.status_code == TOO_MANY:
        record.refused()
