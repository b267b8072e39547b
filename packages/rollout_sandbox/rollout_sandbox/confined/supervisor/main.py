"""Process 1: its request loop, and how it starts a command.

Every request gets exactly one reply, `spawn` when its process has ended. The loop ends, and with it every process of
the sandbox, when the host closes the control socket. Nothing inside can stop, kill or trace it: it is process 1,
without a signal handler, and not dumpable.

A command's program is looked up as a shell does it. The process starts in a session of its own with three descriptors,
default signal dispositions and no blocked signal. Its limits are in force before its first instruction, and no process
inside can raise them: hard limits of the kernel's, and control groups whose entry only process 1 holds. Process 1
itself is under none of them, so that no command can take from it what it needs to answer. It has one thread, so it may
run Python between fork and exec.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of `signal`, without `enum`
import _socket
import ctypes
import errno
import os
import resource
import select
import stat
import sys

from . import file_access, messages, processes

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_EXEC = b"exec"
_SIGNALS = range(1, 65)  # Python ignores two itself, and whoever started the host's process may have ignored others
_OUT_OF_RESOURCES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_NO_CORE_BYTES = 1  # 0 would still start the host's core dump handler


class CommandLimits:
    """Holds what every command is bound to, and all that it starts; None: no limit.

    Args:
        processes: of the sandbox's user, threads included.
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


def spawn(argv: list[bytes], env: dict[bytes, bytes], stdio: Sequence[int], limits: CommandLimits, alone: bool) -> int:
    """Start `argv` with `stdio` as its descriptors; return its pid. A `CannotStart`: it cannot be found or executed."""
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
    limits: CommandLimits,
    alone: bool,
    tell: int,
) -> NoReturn:
    """Become the command, in a fork of process 1; what fails is told, as `STAGE errno`."""
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


_PR_SET_DUMPABLE = 4
_SIGINT, _SIGCHLD = 2, 17
_SIG_DFL, _SIG_BLOCK = 0, 0
_SIGSET_BYTES = 128
_SIGINFO_BYTES = 128


def _harden() -> int:
    """Make this process untouchable from inside and return a signalfd of SIGCHLD."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
    # Python's own handler would let `kill -INT 1` through; a default disposition is ignored for process 1.
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    libc.signal(_SIGINT, _SIG_DFL)
    child = ctypes.create_string_buffer((1 << (_SIGCHLD - 1)).to_bytes(8, sys.byteorder), _SIGSET_BYTES)
    libc.sigprocmask(_SIG_BLOCK, child, None)
    fd: int = libc.signalfd(-1, child, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return fd


def _close_others(ours: set[int]) -> None:
    """Close what bubblewrap has left open, such as the user namespace that it was given."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in ours:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                continue


class Supervisor(messages.MessageServer):
    """Serves one control socket; `run` returns when the host is gone."""

    def __init__(self, control: _socket.socket, limits: CommandLimits) -> None:
        super().__init__(control)
        self._limits = limits
        self._memory_kills = 0
        self._null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._leaders: dict[bytes, int] = {}
        self._commands: dict[int, bytes] = {}
        self._marked: set[tuple[int, int]] = set()

    def run(self, children: int) -> None:
        """Serve until the control socket closes; `children` is a signalfd of SIGCHLD."""
        poller = select.poll()
        poller.register(self._control.fileno(), select.POLLIN)
        poller.register(children, select.POLLIN)
        self.reply(b"0", b"ready")
        watched = self._limits.memory_bytes
        patience = None if watched is None else processes.LOOK_EVERY_S * 1000
        while True:
            if watched is not None:
                self._memory_kills += processes.end_largest_beyond(watched)
            for fd, _ in poller.poll(patience):
                if fd == children:
                    os.read(children, _SIGINFO_BYTES * 16)
                elif not self.serve():
                    return
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self._commands.pop(pid, None)
            if command is not None:
                del self._leaders[command]
                self.reply(command, b"ok", str(os.waitstatus_to_exitcode(status)).encode())

    def on_spawn(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes | None:
        """Fields: "alone" or empty, log path or empty, number of arguments, arguments, NAME=value …; fds: [stdin,]
        stdout, stderr."""
        alone, log, count, *words = fields
        argv, settings = words[: int(count)], words[int(count) :]
        env = dict(setting.split(b"=", 1) for setting in settings)
        env[processes.COMMAND_VARIABLE] = identifier
        if log:
            opened = file_access.open_log(log)
            fds += [opened]
            stdio = [self._null, opened, opened]
        else:
            stdio = fds if len(fds) == 3 else [self._null, *fds]
        try:
            pid = spawn(argv, env, stdio, self._limits, bool(alone))
        except CannotStart as error:
            os.write(stdio[2], f"{error}\n".encode())
            return str(error.exit_code).encode()
        self._leaders[identifier] = pid
        self._commands[pid] = identifier
        return None

    def _tree(self, command: bytes) -> processes.Selection:
        return processes.of_command(self._leaders.get(command, -1), command)

    def on_signal(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Fields: command, signal number."""
        processes.signal_each(self._tree(fields[0])(processes.table()), int(fields[1]))
        return b""

    def on_end(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Fields: command; the reply is as of `on_purge`."""
        return self._ended(self._tree(fields[0]))

    def _ended(self, selection: processes.Selection) -> bytes:
        """End what is selected; returns "outlived" if that outran its end and everything was ended with it."""
        try:
            processes.end_all(selection, self._reap)
        except processes.OutrunError:
            processes.end_everything(self._reap)
            return b"outlived"
        return b""

    def on_read(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> None:
        """Fields: path; the reply has a descriptor of the file."""
        fds.append(file_access.open_regular(fields[0]))
        self.reply(identifier, b"ok", fds=fds[-1:])

    def on_answer(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes | None:
        """Fields: path; the reply has a descriptor of the file, or says why not."""
        own = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        fds.append(own)
        found = file_access.open_answer(fields[0], own)
        if isinstance(found, bytes):
            return found
        fds.append(found)
        self.reply(identifier, b"ok", fds=fds[-1:])
        return None

    def on_write(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Fields: path; fds: the content."""
        file_access.write_from(fds[0], fields[0])
        return b""

    def on_mark(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Spare what runs now from `on_purge`."""
        self._marked = {(process.pid, process.started) for process in processes.table().values()}
        return b""

    def on_purge(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """The reply says "outlived" if the agent's processes outran their end and everything was ended with them."""
        outcome = self._ended(processes.but(self._marked))
        processes.remove_abandoned()
        return outcome

    def on_end_everything(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """End all processes, also what ran at the mark."""
        processes.end_everything(self._reap)
        processes.remove_abandoned()
        return b""

    def on_relieve(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Fields: "all" or empty. Kills what the commands have started, or the commands, too; the reply counts it."""
        spared = set() if fields[0] else set(self._commands)
        processes.signal_each([-1], processes.SIGSTOP)
        found = [pid for pid, process in processes.table().items() if process.alive and pid not in spared]
        processes.signal_each(found, processes.SIGKILL)
        processes.signal_each([-1], processes.SIGCONT)
        return b"%d" % len(found)

    def on_hold(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Stop every process; the reply says how many there are."""
        processes.signal_each([-1], processes.SIGSTOP)
        return b"%d" % sum(process.alive for process in processes.table().values())

    def on_release(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        processes.signal_each([-1], processes.SIGCONT)
        return b""

    def on_kills(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """The reply is how many processes the watch over memory has ended."""
        return b"%d" % self._memory_kills


def main(control_fd: int, workdir: str, settings: dict[str, Any]) -> None:
    """Serve the control socket `control_fd`; commands start in `workdir`, as relative paths do, under these limits."""
    _close_others({control_fd, *settings["groups"], *settings["groups_alone"]})
    children = _harden()
    os.set_inheritable(control_fd, False)
    os.umask(0o022)
    os.makedirs(workdir, exist_ok=True)
    os.chdir(workdir)
    Supervisor(_socket.socket(fileno=control_fd), CommandLimits(**settings)).run(children)
