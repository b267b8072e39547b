"""Reads a small text file that an agent may have written, from inside the sandbox.

Whatever stands at the path (link, FIFO, device, directory, endless file), the read is bounded in
time and size and never follows a link. What is there is reported as a `FileState`; only a failing sandbox
raises.
"""

import asyncio
from enum import IntEnum

import verifiers.v1 as vf

from rollout_sandbox.compat import abilities_of
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import OUT_OF_TIME, engine_of, require_alive, run_checked, run_for

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


_SAID = frozenset(FileState) - {FileState.BINARY, FileState.STALLED}
"""What the program inside may say by its exit code."""


async def read_bounded(runtime: vf.Runtime, path: str, max_bytes: int) -> bytes | FileState:
    """The content of the file at the absolute sandbox `path` if it is a regular one of at most `max_bytes`; the image
    needs `head` and `wc`."""
    taken = await abilities_of(runtime).read_answer(path, max_bytes)
    if taken is not None:
        return FileState[taken.upper()] if isinstance(taken, str) else taken
    argv, failure = program_argv("read_regular.sh", path, str(max_bytes), "look"), f"{path!r} cannot be read"
    looked = await run_checked(runtime, argv, failure, seconds=_READ_TIMEOUT, accepted=frozenset(FileState))
    if looked.exit_code:
        return FileState(looked.exit_code)
    try:
        async with asyncio.timeout(_READ_TIMEOUT + max_bytes / _SLOWEST_BYTES_PER_S):
            return await runtime.read(path, max_bytes)
    except TimeoutError:  # it was put there since, and blocks
        return FileState.STALLED


async def read_bounded_text(runtime: vf.Runtime, path: str, max_bytes: int) -> str | FileState:
    """The text of the file at the absolute sandbox `path` if it is a regular one of at most `max_bytes`; where no
    engine can be asked instead, the image needs `head` and `wc`."""
    taken = await abilities_of(runtime).read_answer(path, max_bytes)
    if taken is not None:
        return _found(taken)
    argv, failure = program_argv("read_regular.sh", path, str(max_bytes)), f"{path!r} cannot be read"
    engine = engine_of(runtime)
    if engine is None:
        result = await run_checked(runtime, argv, failure, seconds=_READ_TIMEOUT, accepted=frozenset(FileState))
    else:
        result = await run_for(runtime, argv, _READ_TIMEOUT, failure)
        if result.exit_code not in _SAID or len(result.stdout) > max_bytes:
            # The image lacks a program, or an agent that is root replaced one.
            await require_alive(runtime, f"reading {path!r}")
            return _found(await engine.regular_file(path, max_bytes))
    state = FileState(result.exit_code)
    return _text(result.stdout) if state is FileState.TEXT else state


def _found(taken: bytes | str) -> str | FileState:
    return FileState[taken.upper()] if isinstance(taken, str) else _text(taken.decode(errors="replace"))


def _text(content: str) -> str | FileState:
    # Runtimes decode output with replacement characters, so these are what is left of foreign bytes.
    return FileState.BINARY if "\0" in content or "\ufffd" in content else content
