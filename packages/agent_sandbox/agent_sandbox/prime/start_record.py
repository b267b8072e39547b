"""How one sandbox came about: what it waited for, and how long the platform took."""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from verifiers.v1.trace import Trace

from agent_sandbox.prime.limits import PrimeLimits

logger = logging.getLogger("verifiers.v1.agent_sandbox.prime")

_WORTH_SAYING_S = 1.0
_WORDS = {
    "place": "a place (--env.prime.max_sandboxes)",
    "rate": "its turn (--env.agent.runtime.creates_per_min)",
    "refused": "the platform, which refused to create it for now (429)",
}


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
            shown = {name: _rounded(values) for name, values in (("waited", self.waited), ("seconds", self.seconds))}
            trace.info.setdefault("agent", {})["sandbox"] = shown


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}
