"""A watch over the disk space that a sandbox takes.

Invariant: a look costs one system call until the file system has lost a part of the limit, whoever took it; only then,
and now and then, the sandbox's files are measured. Beyond the limit processes end, not the rollout, so that the agent
sees it.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rollout_sandbox.confined.disk_use import FILE_BYTES
from rollout_sandbox.confined.interpreter import base_python

LOOK_EVERY_S = 0.5
_MEASURE_EVERY_S = 30.0
_PARTS = 16
_TIMEOUT_S = 60.0
_TOOLS = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

Relieve = Callable[[bool], Awaitable[int]]
"""Ends what the commands have started, or (True) the commands as well; returns how many processes it killed."""


def used_bytes(directory: Path, starter: int) -> int | None:
    """Return what the files below `directory` take, with 4 KiB for each (blocking); None if that takes too long.

    Args:
        directory: on one file system; what agents make unreadable counts only for a root who measures.
        starter: a process whose descendants may hold files that were removed, which count as well.
    """
    argv = [base_python(), "-I", "-S", str(Path(__file__).with_name("disk_use.py")), str(directory), str(starter)]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=_TIMEOUT_S, check=False, env=dict(_TOOLS))
    except subprocess.TimeoutExpired:
        return None
    return int(done.stdout) if done.returncode == 0 else None


class DiskWatch:
    """Watches one sandbox from `run` on; `kills` counts the processes it had ended."""

    def __init__(self, directory: Path, starter: int, limit_bytes: int, relieve: Relieve) -> None:
        self._directory = directory
        self._starter = starter
        self._limit = limit_bytes
        self._relieve = relieve
        self._tolerated = limit_bytes
        self.kills = 0

    def _room(self) -> tuple[int, int]:
        found = os.statvfs(self._directory)
        return found.f_bavail * found.f_frsize, found.f_favail * FILE_BYTES

    async def run(self) -> None:
        room, measured = self._room(), time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now, late = self._room(), time.monotonic() - measured > _MEASURE_EVERY_S
            shrunk = any(before - after >= self._limit // _PARTS for before, after in zip(room, now, strict=True))
            if not shrunk and not late and self._tolerated == self._limit:
                room = max(room[0], now[0]), max(room[1], now[1])
                continue
            room, measured = now, time.monotonic()
            used = await asyncio.to_thread(used_bytes, self._directory, self._starter)
            if used is None:
                continue
            if used > self._tolerated:
                self.kills += await self._relieve(used > self._limit + self._limit // 2)
            # An agent that is over the limit may remove files, if it only does not add any.
            self._tolerated = max(self._limit, used)
