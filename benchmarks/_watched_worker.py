"""An environment worker in a process of its own, asked for rollouts and for what it sees of itself."""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from verifiers.v1.serve import EnvClient

from benchmarks._child import ask, process

HERE = Path(__file__).parent


@asynccontextmanager
async def program(
    name: str, *arguments: str, env: Mapping[str, str] | None = None, python: str = sys.executable
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A program of this folder, once it is ready, and what it said then."""
    async with process(str(HERE / name), *arguments, env=env, python=python) as child:
        assert child.stdout is not None
        while not (found := re.match(rb"READY ?(.*)", await child.stdout.readline())):
            if child.returncode is not None:
                raise SystemExit(f"{name} did not start")
        yield child, found[1].decode()


class WatchedWorker:
    """The worker.

    Args:
        child: its process.
        address: where it serves.
        pid: its number, which need not be that of the child.
    """

    def __init__(self, child: asyncio.subprocess.Process, address: str, pid: int) -> None:
        self._child = child
        self.client = EnvClient(address)
        self.pid = pid

    async def begin(self) -> None:
        """Have it watch from here on."""
        await ask(self._child, "begin")

    async def watched(self) -> dict[str, float]:
        """What it has seen since: see `Watch.seen` of `_env_worker.py`."""
        return await ask(self._child, "watched")

    async def held(self) -> dict[str, int]:
        """What it holds now, by kind."""
        return await ask(self._child, "held")

    async def more_than(self, before: Mapping[str, int], seconds: float) -> dict[str, int]:
        """What it holds beyond `before`, as soon as that is nothing, or after so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            now = await self.held()
            more = {name: count - before[name] for name, count in now.items() if count > before[name]}
            if not more or time.monotonic() > deadline:
                return more
            await asyncio.sleep(1)


@asynccontextmanager
async def watched_worker(
    config: Mapping[str, Any],
    scratch: Path,
    env: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> AsyncIterator[WatchedWorker]:
    """A worker of the environment that these fields configure.

    Args:
        config: of the environment, as in a TOML file.
        scratch: a directory for its file.
        env: the process's variables; None is this one's.
        python: what runs it.
    """
    path = scratch / "environment.json"
    path.write_text(json.dumps(config))
    async with program("_env_worker.py", "--config", str(path), env=env, python=python) as (child, said):
        address, pid = said.split()
        worker = WatchedWorker(child, address, int(pid))
        try:
            yield worker
        finally:
            await worker.client.close()
