"""Starting a command: program look-up as a shell does it, its limits, and what the new process inherits.

Invariant: the process starts in a session of its own with three descriptors, default signal dispositions and no blocked
signal. Its limits are in force before its first instruction, and no process inside can raise them: hard limits of the
kernel's, and control groups whose entry only process 1 holds. Process 1 itself is under none of them, so that no
command can take from it what it needs to answer. It has one thread, so it may run Python between fork and exec.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of `signal`, without `enum`
import errno
import os
import resource
import stat

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_EXEC = b"exec"
_SIGNALS = range(1, 65)  # Python ignores two itself, and whoever started the host's process may have ignored others
_OUT_OF_RESOURCES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_NO_CORE_BYTES = 1  # 0 would still start the host's core dump handler


class Limits:
    """What every command is bound to, and all that it starts; None: no limit.

    Args:
        processes: of the sandbox's user, threads included.
        open_files: of each process.
        file_bytes: size of each file.
        groups: descriptors of the entry files of the commands' control groups.
        groups_alone: the same for a command that runs while the others are held.
        memory_bytes: resident memory of all processes, which process 1 watches where no control group does.
    """

    def __init__(
        self,
        processes: int | None = None,
        open_files: int | None = None,
        file_bytes: int | None = None,
        groups: Sequence[int] = (),
        groups_alone: Sequence[int] = (),
        memory_bytes: int | None = None,
    ) -> None:
        wanted = {
            resource.RLIMIT_NPROC: processes,
            resource.RLIMIT_NOFILE: open_files,
            resource.RLIMIT_FSIZE: file_bytes,
            resource.RLIMIT_CORE: _NO_CORE_BYTES,
        }
        self._hard: dict[int, int] = {}
        for kind, value in wanted.items():
            if value is not None:
                most = resource.getrlimit(kind)[1]
                self._hard[kind] = value if most == resource.RLIM_INFINITY else min(value, most)
        self._groups = groups
        self._groups_alone = groups_alone
        self.memory_bytes = memory_bytes
        for fd in (*groups, *groups_alone):
            os.set_inheritable(fd, False)
        # The kernel lets a process send descriptors while fewer than its own limit are on the way, of its user's.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def impose(self, alone: bool) -> None:
        """Put the calling process, a fork of process 1, under the limits; an `OSError` if a control group is gone."""
        for fd in self._groups_alone if alone else self._groups:
            os.write(fd, b"0")  # the writer itself
        for kind, value in self._hard.items():
            resource.setrlimit(kind, (value, value))


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
    """Start `argv` with `stdio` as its descriptors 0, 1 and 2, in the current directory; return its pid. A
    `CannotStart`: no such program, or it cannot be executed."""
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
