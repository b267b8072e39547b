"""The request loop of process 1.

Invariant: every request gets exactly one reply, `spawn` when its process has ended. The loop ends, and with it every
process of the sandbox, when the host closes the control socket. Nothing inside can stop, kill or trace it: it is
process 1, without a signal handler, and not dumpable.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import select
import sys

from . import files, messages, processes
from .spawn import CannotStart, Limits, spawn

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from typing import Any

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


class Supervisor(messages.Server):
    """Serves one control socket; `run` returns when the host is gone."""

    def __init__(self, control: _socket.socket, limits: Limits) -> None:
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
            opened = files.open_log(log)
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
        fds.append(files.open_regular(fields[0]))
        self.reply(identifier, b"ok", fds=fds[-1:])

    def on_answer(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes | None:
        """Fields: path; the reply has a descriptor of the file, or says why not."""
        own = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        fds.append(own)
        found = files.open_answer(fields[0], own)
        if isinstance(found, bytes):
            return found
        fds.append(found)
        self.reply(identifier, b"ok", fds=fds[-1:])
        return None

    def on_write(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Fields: path; fds: the content."""
        files.write_from(fds[0], fields[0])
        return b""

    def on_mark(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """What runs now is spared by `on_purge`."""
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
    """Serve the control socket `control_fd`; relative paths and commands start in `workdir`, under `Limits` so set."""
    _close_others({control_fd, *settings["groups"], *settings["groups_alone"]})
    children = _harden()
    os.set_inheritable(control_fd, False)
    os.umask(0o022)
    os.makedirs(workdir, exist_ok=True)
    os.chdir(workdir)
    Supervisor(_socket.socket(fileno=control_fd), Limits(**settings)).run(children)
