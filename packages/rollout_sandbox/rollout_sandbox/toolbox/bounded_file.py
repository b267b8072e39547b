"""Reads a small file that an agent may have written, from inside the sandbox.

Whatever stands at the path, the read is bounded in time and size and never follows a link there. What is there is
reported as a `FileState`; only a failing sandbox raises.
"""

import asyncio
from enum import IntEnum

import verifiers.v1 as vf

from rollout_sandbox.compat import abilities_of
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import OUT_OF_TIME, engine_of, require_alive, run_checked

_READ_TIMEOUT = 30.0
_SLOWEST_BYTES_PER_S = 1 << 17


class FileState(IntEnum):
    """Names what was found at a path; the numbers are exit codes, all but the last two those of `read_regular.sh`."""

    TEXT = 0
    """A regular file of UTF-8 text within the limit."""
    ABSENT = 40
    SYMLINK = 41
    NOT_A_FILE = 42
    """A directory, FIFO, socket or device."""
    UNREADABLE = 43
    OVERSIZED = 44
    BINARY = 45
    """A regular file that holds a NUL or is not UTF-8."""
    STALLED = OUT_OF_TIME
    """The read did not end in 30 seconds although the sandbox is alive."""


async def read_bounded(runtime: vf.Runtime, path: str, max_bytes: int) -> bytes | FileState:
    """The content of the file at the absolute sandbox `path` if it is a regular one of at most `max_bytes`; where
    neither the sandbox nor an engine can be asked for it from outside, the image needs `head` and `wc`."""
    taken = await abilities_of(runtime).read_answer(path, max_bytes)
    if taken is None and (engine := engine_of(runtime)) is not None:
        await require_alive(runtime, f"reading {path!r}")
        taken = await engine.regular_file(path, max_bytes)
    if taken is not None:
        return FileState[taken.upper()] if isinstance(taken, str) else taken
    argv, failure = program_argv("read_regular.sh", path, str(max_bytes)), f"{path!r} cannot be read"
    looked = await run_checked(runtime, argv, failure, seconds=_READ_TIMEOUT, accepted=frozenset(FileState))
    if looked.exit_code:
        return FileState(looked.exit_code)
    try:
        async with asyncio.timeout(_READ_TIMEOUT + max_bytes / _SLOWEST_BYTES_PER_S):
            return await runtime.read(path, max_bytes)
    except TimeoutError:  # it was put there since, and blocks
        return FileState.STALLED


async def read_bounded_text(runtime: vf.Runtime, path: str, max_bytes: int) -> str | FileState:
    """The same as `read_bounded` gives, of a file that holds text."""
    found = await read_bounded(runtime, path, max_bytes)
    if isinstance(found, FileState):
        return found
    text = found.decode(errors="replace")
    return FileState.BINARY if "\0" in text or "\ufffd" in text else text
