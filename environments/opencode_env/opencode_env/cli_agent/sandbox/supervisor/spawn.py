"""Starting a command: program look-up as a shell does it, and what the new process inherits.

Invariant: the process starts in a session of its own with three descriptors, default signal dispositions and no
blocked signal.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_SIGNALS = range(1, 65)  # Python ignores two itself, and whoever started the host's process may have ignored others
_OUT_OF_RESOURCES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class CannotStart(Exception):
    """The program could not be started; `exit_code` is the one a shell gives for it."""

    def __init__(self, program: bytes, reason: str, exit_code: int) -> None:
        super().__init__(f"{os.fsdecode(program)}: {reason}")
        self.exit_code = exit_code


def _find(program: bytes, path: bytes) -> bytes:
    if b"/" in program:
        return program
    denied = False
    for directory in path.split(b":"):
        candidate = os.path.join(directory or b".", program)
        try:
            regular = stat.S_ISREG(os.stat(candidate).st_mode)
        except OSError:
            continue
        if regular and os.access(candidate, os.X_OK):
            return candidate
        denied = True
    if denied:
        raise CannotStart(program, "Permission denied", NOT_EXECUTABLE)
    raise CannotStart(program, "command not found", NOT_FOUND)


def spawn(argv: list[bytes], env: dict[bytes, bytes], stdio: Sequence[int]) -> int:
    """Start `argv` with `stdio` as its descriptors 0, 1 and 2, in the current directory; return its pid.

    Raises:
        CannotStart: no such program, or it cannot be executed.
        OSError: the sandbox is out of processes, memory or descriptors.
    """
    program = _find(argv[0], env.get(b"PATH", b""))
    try:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)],
            setsid=True,
            setsigmask=[],
            setsigdef=_SIGNALS,
        )
    except OSError as error:
        if error.errno in _OUT_OF_RESOURCES:
            raise
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        raise CannotStart(argv[0], error.strerror or str(error), code) from error
