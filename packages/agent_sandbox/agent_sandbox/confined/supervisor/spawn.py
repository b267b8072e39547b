"""Starting a command: program look-up as a shell does it, and what the new process inherits.

Invariant: the process starts under the sandbox's limits, in a session of its own with three descriptors, default signal
dispositions and no blocked signal. Process 1 has one thread, so it may run Python between fork and exec.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of `signal`, without `enum`
import errno
import os
import stat

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from .limits import Limits

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_EXEC = b"exec"
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


def spawn(argv: list[bytes], env: dict[bytes, bytes], stdio: Sequence[int], limits: Limits, alone: bool) -> int:
    """Start `argv` with `stdio` as its descriptors 0, 1 and 2, in the current directory; return its pid.

    Raises:
        CannotStart: no such program, or it cannot be executed.
        OSError: the sandbox is out of processes, memory or descriptors.
    """
    program = _find(argv[0], env.get(b"PATH", b""))
    told, tell = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        _become(program, argv, env, stdio, limits, alone, tell)
    os.close(tell)
    try:
        report = os.read(told, 100)
    finally:
        os.close(told)
    if not report:
        return pid
    os.waitpid(pid, 0)
    stage, _, number = report.partition(b" ")
    reason = os.strerror(int(number))
    if stage != _EXEC or int(number) in _OUT_OF_RESOURCES:
        raise OSError(int(number), reason)
    raise CannotStart(argv[0], reason, NOT_FOUND if int(number) == errno.ENOENT else NOT_EXECUTABLE)


def _become(
    program: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    stdio: Sequence[int],
    limits: Limits,
    alone: bool,
    tell: int,
) -> NoReturn:
    """Turn this fork of process 1 into the command; what fails is told, as `STAGE errno`."""
    stage = b"limits"
    try:
        limits.impose(alone)
        os.setsid()
        for number in _SIGNALS:
            try:
                _signal.signal(number, _signal.SIG_DFL)
            except (OSError, ValueError):  # the C library's own, and the two that nobody can change
                continue
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        stage = _EXEC
        os.execve(program, argv, env)
    except OSError as error:
        os.write(tell, b"%s %d" % (stage, error.errno or 0))
    finally:
        os._exit(NOT_FOUND)
