"""Servers of tools that verifiers starts on this machine, forked as `vf-eval` is: their imports take seconds too.

Verifiers after 0.4.0 starts them elsewhere, and executes them.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from verifiers.v1 import runtimes

from tests.support.forked import Forked

_RUNTIME: Any = getattr(runtimes, "SubprocessRuntime", None)
_executed = getattr(_RUNTIME, "run_background", None)


class _Server:
    """A forked server as verifiers knows its processes; it ends with this process, as an executed one does."""

    def __init__(self, program: Forked) -> None:
        self.pid = program.pid
        self._program = program

    @property
    def returncode(self) -> int | None:
        return self._program.poll()

    async def wait(self) -> int:
        return await self._program.ended()


def fork_servers(address: str) -> None:
    """Let the fork server at that address fork the modules that verifiers starts from this process."""
    if _executed is None:
        return

    def started(argv: list[str], log: Path, env: dict[str, str]) -> _Server:
        variables = {name: value for name, value in os.environ.items() if "API_KEY" not in name.upper()}
        with log.open("wb") as file:
            return _Server(Forked(argv, log.parent, variables | env, file, file, server=address))

    async def run_background(self: Any, argv: list[str], env: dict[str, str], log: str) -> None:
        if argv[:2] != [sys.executable, "-m"]:
            await _executed(self, argv, env, log)
            return
        background: list[Any] = self._background
        background.append(await asyncio.to_thread(started, argv, Path(self.info.id or "", log), self.process_env(env)))

    _RUNTIME.run_background = run_background
