"""Reads a small text file that an agent may have written, from inside the sandbox.

Invariant: whatever stands at the path (link, FIFO, device, directory, endless file), the read is bounded in
time and size and never follows a link. What is there is reported as a `FileState`; only a failing sandbox
raises.
"""

from dataclasses import dataclass
from enum import IntEnum

import verifiers.v1 as vf

from opencode_rubrics.sandbox.checked_run import OUT_OF_TIME, run_checked
from opencode_rubrics.sandbox.programs import program_argv

_READ_TIMEOUT = 30.0


class FileState(IntEnum):
    """What was found at a path; the numbers are exit codes, all but the last two those of `read_regular.sh`."""

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


@dataclass(frozen=True)
class BoundedText:
    """The outcome of one bounded read; `text` is empty unless `state` is `TEXT`."""

    state: FileState
    text: str = ""


async def read_bounded_text(runtime: vf.Runtime, path: str, max_bytes: int) -> BoundedText:
    """Read the file at the absolute sandbox `path` if it is a regular one of at most `max_bytes`.

    Raises:
        SandboxError: the sandbox is gone, or lacks `head` or `wc`.
    """
    argv = program_argv("read_regular", path, str(max_bytes))
    result = await run_checked(
        runtime, argv, f"{path!r} cannot be read", seconds=_READ_TIMEOUT, accepted=frozenset(FileState)
    )
    state = FileState(result.exit_code)
    if state is not FileState.TEXT:
        return BoundedText(state)
    # Runtimes decode output with replacement characters, so these are what is left of foreign bytes.
    if "\0" in result.stdout or "\ufffd" in result.stdout:
        return BoundedText(FileState.BINARY)
    return BoundedText(state, result.stdout)
