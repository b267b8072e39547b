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

LOOK_EVERY_S = 0.5
_MEASURE_EVERY_S = 30.0
_PARTS = 16
_FILE_BYTES = 4096
_TIMEOUT_S = 60.0

Relieve = Callable[[bool], Awaitable[int]]
"""Ends what the commands have started, or (True) the commands as well; returns how many processes it killed."""


def used_bytes(directory: Path, starter: int) -> int:
    """Return what the files below `directory` take, with 4 KiB for each (blocking).

    Args:
        directory: on one file system; what agents make unreadable counts only for a root who measures.
        starter: a process whose descendants may hold files open that were removed, which count as well.
    """
    sizes = []
    for options in (["-B1"], ["--inodes"]):
        done = subprocess.run(
            ["du", "-sx", *options, "--", directory], capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        sizes.append(int(done.stdout.split(maxsplit=1)[0]) if done.stdout else 0)
    return sizes[0] + _FILE_BYTES * sizes[1] + _removed_bytes(directory.stat().st_dev, starter)


def _removed_bytes(device: int, starter: int) -> int:
    found = {}
    for pid in _descendants(starter):
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # it ended, or hides them: the sandbox's process 1
            continue
        for name in names:
            try:
                held = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if held.st_dev == device and held.st_nlink == 0:
                found[held.st_ino] = held.st_blocks * 512
    return sum(found.values())


def _descendants(starter: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_bytes()
            except OSError:
                continue
            children.setdefault(int(stat[stat.rindex(b")") + 2 :].split()[1]), []).append(int(name))
    found, waiting = set(), [starter]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


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
        """Return the file system's free space in bytes, and in files, as bytes."""
        found = os.statvfs(self._directory)
        return found.f_bavail * found.f_frsize, found.f_favail * _FILE_BYTES

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            SandboxError: the sandbox is gone.
        """
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
            if used > self._tolerated:
                self.kills += await self._relieve(used > self._limit + self._limit // 2)
            # An agent that is over the limit may remove files, if it only does not add any.
            self._tolerated = max(self._limit, used)
