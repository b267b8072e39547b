"""How OpenCode came into a sandbox, and what that costs over a whole run.

Invariant: a process whose configuration left the choice open says once how often it moved the same bytes, and what to
choose instead.
"""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

from opencode_env.cli_agent.traces import AnyTrace, agent_record

logger = logging.getLogger("verifiers.v1.opencode_env.install")

SAID_AT = 10
"""Sandboxes that were given the same bytes until that is said."""


@dataclass
class InstallRecord:
    """One installation; `put_on` shows it as `trace.info["agent"]["install"]`."""

    way: Literal["present", "download", "upload"] = "present"
    """`present`: it was there, in the image or shown by this machine."""
    bytes: int = 0
    """What was moved into the sandbox, packed."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By stage: `check` what is there, `download` or `upload`, `unpack`, `verify`."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the body to a stage."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 3)

    def put_on(self, trace: AnyTrace) -> None:
        agent_record(trace)["install"] = asdict(self)


class Traffic:
    """What one process has moved into sandboxes, by where it came from."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._said = False

    def count(self, record: InstallRecord, origin: str, *, chosen: bool) -> None:
        """Count an installation whose bytes came from `origin`, in words; nobody has to be told where the configuration
        has `chosen` this way."""
        self._times[origin] += 1
        self._bytes[origin] += record.bytes
        if chosen or self._said or self._times[origin] < SAID_AT:
            return
        self._said = True
        total, each = self._bytes[origin] / 1e6, self._bytes[origin] / self._times[origin] / 1e6
        told = (
            "%d sandboxes of this process were each given the same %.0f MB from %s, %.0f MB so far, and every further "
            "one will be (install = auto chose the %s): give the sandboxes an image that holds OpenCode (make image), "
            "or name a mirror of your own (--env.agent.harness.mirror), or choose this way to hear no more of it "
            "(--env.agent.harness.install %s)"
        )
        logger.warning(told, self._times[origin], each, origin, total, record.way, record.way)


TRAFFIC = Traffic()
"""This process's."""
