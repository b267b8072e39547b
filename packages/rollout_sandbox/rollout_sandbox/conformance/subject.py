"""The runtime that is checked, and how its sandboxes and what runs in them are looked at."""

import asyncio
import contextlib
import inspect
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import TypeAdapter
from verifiers.v1.runtimes import ProgramResult, RuntimeConfig, provision_runtime

from rollout_sandbox.programs import program_text
from rollout_sandbox.provisioning import provisioned

PATIENCE_SECONDS = 300.0
"""After so long a condition counts as never met: far more than it takes anywhere, as only a failure waits for it."""

LIST_PROCESSES = "for p in /proc/[0-9]*; do tr '\\0\\n' '  ' <$p/cmdline; echo; done"
"""A shell command that prints the command line of every process in the sandbox, each in one line."""

_OURS = {"confined": "rollout_sandbox.ConfinedBackend", "podman": "rollout_sandbox.PodmanBackend"}


@dataclass(frozen=True)
class Subject:
    """A runtime: `confined`, `podman`, a type that verifiers knows, or the import path of a backend."""

    runtime: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of its configuration, for every sandbox."""

    @property
    def backend(self) -> Any:
        """The class at the import path, which must be there; None for a type of verifiers'."""
        module, dot, name = _OURS.get(self.runtime, self.runtime).rpartition(".")
        return getattr(import_module(module), name) if dot else None

    def config(self, **more: Any) -> Any:
        """The configuration of one sandbox (a `ValidationError`: verifiers knows no such type, or it has no such
        options)."""
        options = {**self.options, **more}
        if self.backend is not None:
            return self.backend.config_class(**options)
        return TypeAdapter(RuntimeConfig).validate_python({"type": self.runtime, **options})

    def has(self, option: str) -> bool:
        return option in type(self.config()).model_fields

    def box(self, **more: Any) -> AbstractAsyncContextManager[vf.Runtime]:
        """A started sandbox, which is removed on exit."""
        config = self.config(**more)
        return provision_runtime(config) if self.backend is None else provisioned(self.backend(config))


def pause_after(asked: float) -> float:
    """Return how long to wait (s) before a condition is asked again that took `asked` seconds: asking takes a fifth of
    the time at most, unless a single question takes longer than a quarter of a second."""
    return min(max(0.02, 4 * asked), 1.0)


async def until(condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Return once the condition, which may be a coroutine function, is true; a `TimeoutError` after `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            began = time.monotonic()
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(pause_after(time.monotonic() - began))


async def shell(box: vf.Runtime, script: str, *operands: str, **env: str) -> ProgramResult:
    return await box.run(["sh", "-c", script, "sh", *operands], env)


async def runs(box: vf.Runtime, words: str) -> bool:
    """Whether a command line in the sandbox, other than the one that asks, begins with `words`."""
    listed = await box.run(["sh", "-c", LIST_PROCESSES], {})
    return any(line.startswith(words) for line in listed.stdout.splitlines())


def program(name: str, *operands: str) -> list[str]:
    """The argument vector of one of the suite's programs, inside."""
    return ["python3", "-c", program_text(name, "rollout_sandbox.conformance"), *operands]


def peer(*operands: str) -> list[str]:
    """The argument vector of one end of a connection, see `peer.py`."""
    return program("peer.py", *operands)


def host_pids_of(words: str) -> list[int]:
    """The host's processes whose command line holds `words`; its arguments are separated by NUL."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid != os.getpid() and words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def unused_seconds() -> str:
    """A number of seconds that nobody else on this machine sleeps."""
    return f"{uuid.uuid4().int % 10**9 + 10**6}.25"
