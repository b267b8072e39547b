"""Locks between processes and threads: `flock` on a file of its own, free as soon as its holder closed it or died.

Whoever can open the file can hold the lock, so lock files lie in directories of which a sandbox sees nothing.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path


def private_directory(path: Path) -> Path:
    """Make `path`, with its parents, if it is missing; only this user may pass a directory that is made here."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock at `path` until it is closed; `None` if somebody else holds it."""
    fd = _opened(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return fd


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock at `path`; one that may not be opened is another user's, and counts as held."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except FileNotFoundError:
        pass
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock at `path`; blocks while somebody else does."""
    fd = _opened(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@asynccontextmanager
async def locked_async(path: Path) -> AsyncIterator[None]:
    """Hold the lock at `path`; waits for it without blocking the event loop."""
    while True:
        fd = try_lock(path)
        if fd is not None:
            break
        await asyncio.sleep(0.05)
    try:
        yield
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
