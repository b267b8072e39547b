"""One running sandbox: its directory, its bubblewrap process and its control channel.

Whatever happens (a failed start, cancellation, an exit without an event loop), `kill` leaves no process and
no directory behind; it returns when process 1, and with it everything inside, is gone.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import platform
import py_compile
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from verifiers.v1.errors import SandboxError
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.confined.agent_code import HIDDEN, TOOLS
from rollout_sandbox.confined.bubblewrap import HERE, Bubblewrap, command_line, require_bubblewrap
from rollout_sandbox.confined.channel import Channel
from rollout_sandbox.confined.config import Bind, LocalSandboxConfig
from rollout_sandbox.confined.directory import HOME, SandboxDirectory, sweep, sweep_former
from rollout_sandbox.confined.limits import SandboxLimits
from rollout_sandbox.confined.supervisor.messages import memfd
from rollout_sandbox.confined.users import SandboxUser
from rollout_sandbox.confined.uv_scripts import SCRIPTS

_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_EOPNOTSUPP, _EAFNOSUPPORT = 0x0005005F, 0x00050061
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000
_PROCESS_ONE = 1
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_PTRACE_ATTACH, _PTRACE_SEIZE = 16, 0x4206
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""


@dataclass(frozen=True)
class _Machine:
    """The audit architecture and the numbers of the calls that matter; little-endian, 64 bit."""

    arch: int
    keys: tuple[int, ...]  # add_key, request_key, keyctl
    on_pid: tuple[int, ...]  # their first argument: prlimit64, sched_setaffinity, -scheduler, -param, -attr
    setpriority: int
    ioprio_set: int
    ptrace: int
    into_others: tuple[int, ...]  # process_vm_writev, pidfd_getfd
    absent: tuple[int, ...]  # io_uring_setup, -enter, -register, userfaultfd, io_setup, bpf, perf_event_open
    fallocate: int
    sockets: tuple[int, ...]  # socket, socketpair


_MACHINES = {
    "x86_64": _Machine(
        *(0xC000003E, (248, 249, 250), (302, 203, 144, 142, 314), 141, 251, 101, (311, 438)),
        *((425, 426, 427, 323, 206, 321, 298), 285, (41, 53)),
    ),
    "aarch64": _Machine(
        *(0xC00000B7, (217, 218, 219), (261, 122, 119, 118, 274), 140, 30, 117, (271, 438)),
        *((425, 426, 427, 282, 0, 280, 241), 47, (198, 199)),
    ),
}


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _argument(number: int) -> bytes:
    return _instruction(_LOAD_WORD, _ARGS_OFFSET + 8 * number)


def _deny(code: int, value: int, action: int, *, unless: bool = False) -> bytes:
    """Return `action` if the loaded word compares true with `value` (`unless`: if it does not)."""
    return _instruction(code, value, int(unless), int(not unless)) + _instruction(_RETURN, action)


def _call(number: int, *checks: bytes) -> bytes:
    """Decide one system call: the checks in order, then allow."""
    body = b"".join(checks) + _instruction(_RETURN, _ALLOW)
    return _instruction(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _only(values: tuple[int, ...], action: int) -> list[bytes]:
    """Allow if the loaded word is one of `values`, else return `action`."""
    allowed = [_instruction(_JUMP_EQUAL, value, 0, 1) + _instruction(_RETURN, _ALLOW) for value in values]
    return [*allowed, _instruction(_RETURN, action)]


def seccomp_program() -> bytes | None:
    """Return the filter of system calls for this kind of machine, None where its call numbers are not known.

    Process 1 has the agent's uid: the filter refuses calls that name it, with which an agent could starve it. It
    refuses the key rings, which no namespace separates, and to enter another process: what ran before the agent is
    spared at its end, and must not carry the agent's code into the scoring. Sockets are of families that a network
    namespace separates; io_uring, userfaultfd, bpf and perf_event_open, which many attacks on kernels use, are not
    there; nor is io_setup, whose contexts are counted for the whole machine, nor fallocate, with which one call takes
    the disk.

    Format: classic BPF over `struct seccomp_data`, as in seccomp(2) and <linux/bpf_common.h>.
    """
    known = _MACHINES.get(platform.machine())
    if known is None:
        return None
    not_process_one = _deny(_JUMP_EQUAL, _PROCESS_ONE, _EPERM)
    program = [
        _instruction(_LOAD_WORD, _ARCH_OFFSET),
        _deny(_JUMP_EQUAL, known.arch, _KILL, unless=True),  # 32-bit calls would pass all that follows
        _instruction(_LOAD_WORD, _NUMBER_OFFSET),
        _deny(_JUMP_AT_LEAST, _X32_BIT, _ENOSYS),
        *(_deny(_JUMP_EQUAL, number, _EPERM) for number in (*known.keys, *known.into_others)),
        *(_deny(_JUMP_EQUAL, number, _ENOSYS) for number in known.absent),
        _deny(_JUMP_EQUAL, known.fallocate, _EOPNOTSUPP),
        *(_call(number, _argument(0), *_only(_FAMILIES, _EAFNOSUPPORT)) for number in known.sockets),
        _call(
            known.ptrace,
            _argument(0),
            _deny(_JUMP_EQUAL, _PTRACE_ATTACH, _EPERM),
            _deny(_JUMP_EQUAL, _PTRACE_SEIZE, _EPERM),
        ),
        *(_call(number, _argument(0), not_process_one) for number in known.on_pid),
    ]
    for number, process in ((known.setpriority, _PRIO_PROCESS), (known.ioprio_set, _IOPRIO_WHO_PROCESS)):
        only_processes = _deny(_JUMP_EQUAL, process, _EPERM, unless=True)
        program.append(_call(number, _argument(0), only_processes, _argument(1), not_process_one))
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])


logger = logging.getLogger("verifiers.v1.rollout_sandbox.confined")

_START_TIMEOUT_S = 120.0
"""A start takes a fraction of a second of CPU, which can be a minute on a machine with many rollouts too many."""
_KILL_TIMEOUT_S = 15.0
_FIRST_FOR_MEMORY = b"1000"
MOST_TERMINALS = 32
"""Pseudo-terminals of one sandbox: the kernel counts them for the whole machine."""
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_MS_NOSUID, _MS_NOEXEC, _MS_REMOUNT = 2, 8, 32
_AS_BUBBLEWRAP_MOUNTS = b"ptmxmode=0666,mode=620"


@cache
def _without_groups() -> list[str]:
    """The beginning of a command that runs the rest without this process's groups; empty if there is no program."""
    program = shutil.which("setpriv")
    return [] if program is None else [program, "--clear-groups", "--"]


@cache
def _compile_supervisor() -> None:
    """Leave byte code next to the supervisor's sources: it cannot write any itself."""
    for source in (HERE / "supervisor").glob("*.py"):
        try:
            py_compile.compile(str(source), quiet=2)
        except OSError:  # a read-only installation; the sandbox starts 10 ms later then
            return


class Sandbox:
    """A sandbox that is started once and killed once."""

    def __init__(self, name: str, options: LocalSandboxConfig, workdir: str, lent: SandboxUser | None) -> None:
        self.name = name
        self._options = options
        self._workdir = workdir
        self.limits = SandboxLimits(options, lent)
        self._directory: SandboxDirectory | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._process_one: int | None = None
        self._watched: int | None = None
        self._killing = threading.Lock()
        self._is_over = False
        self.outlived = False
        """Whether processes of the agent outran their end, so that everything was ended with them."""

    async def start(self, binds: Sequence[Bind], temporary: str) -> None:
        bubblewrap = await run_shielded(asyncio.to_thread(self._prepare))
        self.directory.part(f"tmp/{temporary}")
        binds = [Bind(SCRIPTS, str(SCRIPTS)), Bind(self.directory.part("door"), TOOLS), *binds]
        self.limits.require_readable(binds)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = Channel(ours, self._describe_loss)
        with theirs, self._killing:
            if not self._is_over:
                self._launch(bubblewrap, binds, theirs.fileno())
        if self._process is None:
            await asyncio.to_thread(self.kill)  # once more: what was prepared meanwhile
            raise SandboxError(f"sandbox {self.name} was stopped before it had started")
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._channel.ready
        except TimeoutError:
            raise SandboxError(f"sandbox {self.name} did not start within {_START_TIMEOUT_S:g} s") from None
        try:
            self._process_one = os.pidfd_open(self._channel.process_one)
        except ProcessLookupError:
            raise SandboxError(self._describe_loss()) from None
        _limit_terminals(self._channel.process_one)
        _first_for_memory(self._channel.process_one)
        # Without the right to signal another user id, bubblewrap cannot take process 1 along when it is killed.
        self._watched = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._watched, self.close_channel)

    def _launch(self, bubblewrap: Bubblewrap, binds: Sequence[Bind], control_fd: int) -> None:
        """Start bubblewrap, on the event loop's thread: --die-with-parent means the thread that started it."""
        user, options = self.limits.user, self._options
        program = seccomp_program()
        filter_fd = None if program is None else memfd(program)
        try:
            with self.limits.settings() as limits, self.directory.log.open("wb") as log:
                start = f"from supervisor.main import main; main({control_fd}, {self._workdir!r}, {limits!r})"
                fds = [control_fd, filter_fd, user and user.namespace, *limits["groups"], *limits["groups_alone"]]
                # `extra_groups` would have this whole process forked, which costs more CPU than all else of a start.
                clear = [] if user is None else _without_groups()
                line = command_line(bubblewrap, self.directory, options, binds, self._workdir, user, filter_fd, start)
                self._process = subprocess.Popen(
                    [*clear, *line],
                    env={},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=[fd for fd in fds if fd is not None],
                    start_new_session=True,
                    extra_groups=None if user is None or clear else [],
                )
        finally:
            if filter_fd is not None:
                os.close(filter_fd)

    def _prepare(self) -> Bubblewrap:
        bubblewrap = require_bubblewrap()
        _compile_supervisor()
        SCRIPTS.mkdir(parents=True, exist_ok=True)
        SCRIPTS.chmod(0o755)
        self.limits.take_user()
        user = self.limits.user
        self._directory = SandboxDirectory(self.name, owner=None if user is None else user.uid)
        self.limits.make_group(self._directory.path.name)
        sweep()
        sweep_former()
        return bubblewrap

    @property
    def pid(self) -> int:
        """The host's process above all that runs inside."""
        assert self._process is not None
        return self._process.pid

    @property
    def directory(self) -> SandboxDirectory:
        """The host directory of its writable files, once it is being started."""
        assert self._directory is not None
        return self._directory

    def shown_to_tool_servers(self) -> list[Bind]:
        """Return what a tool server shares with the agent: all that is writable but what scoring has for itself."""
        areas = self.directory.areas(self._workdir).items()
        return [Bind(source, target, writable=True) for target, source in areas if not target.startswith(HIDDEN)]

    def kept_areas(self) -> list[str]:
        """Return the paths inside of all that is writable, those within others left out."""
        areas = sorted(self.directory.areas(self._workdir))
        return [path for path in areas if not any(path.startswith(f"{other}/") for other in areas)]

    def agent_code_directories(self) -> tuple[Path, Path]:
        try:
            return self.directory.part("door"), self.directory.part("shared")
        except FileNotFoundError:
            raise SandboxError(self._describe_loss()) from None

    @contextlib.contextmanager
    def home_unnamed(self) -> Iterator[None]:
        """Keep the agent's home out of /etc/passwd: curl, ssh, sqlite3 and others look for settings there."""
        passwd = self.directory.passwd
        before = passwd.read_text()
        passwd.write_text(before.replace(HOME, "/nonexistent"))
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):  # the sandbox is gone
                os.stat(passwd)
                passwd.write_text(before)

    @property
    def channel(self) -> Channel:
        if self._channel is None:
            raise SandboxError(f"sandbox {self.name} is not started")
        return self._channel

    @property
    def is_alive(self) -> bool:
        if self._process_one is None or self._channel is None or not self._channel.is_open:
            return False
        return not _has_ended(self._process_one, 0)

    def close_channel(self) -> None:
        """Fail what is pending and let process 1 end; idempotent, on the event loop."""
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = None
        if self._channel is not None:
            self._channel.close()

    def _describe_loss(self) -> str:
        return f"sandbox {self.name} is gone: {self.directory.log_tail() or 'killed from outside, or stopped'}"

    def kill(self) -> None:
        """End everything inside, wait for it and remove the directory; idempotent, from any thread, blocks briefly."""
        with self._killing:
            self._is_over = True
            if self.limits.group is not None:
                self.limits.group.thaw()
            if self._process is not None and self._process.returncode is None:
                self._kill_process(self._process)
            if self._process_one is not None:
                os.close(self._process_one)
                self._process_one = None
            if self._directory is not None:
                self._directory.remove()
            if self._process is None or self._process.returncode is not None:
                self.limits.release()
            else:
                threading.Thread(target=self._release_late, args=(self._process,), daemon=True).start()

    def _release_late(self, process: "subprocess.Popen[bytes]") -> None:
        """Its user id stays taken until nothing runs as that user."""
        process.wait()
        with self._killing:
            self.limits.release()

    def _kill_process(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            # Through process 1, because bubblewrap then ends only after the whole namespace has.
            if self._process_one is not None:
                signal.pidfd_send_signal(self._process_one, signal.SIGKILL)
            else:
                os.killpg(process.pid, signal.SIGKILL)  # early on, the inner half has not asked to die with it
        except ProcessLookupError:
            pass
        try:
            process.wait(_KILL_TIMEOUT_S)
            if self._process_one is not None:  # which bubblewrap, killed before it, did not wait for
                _has_ended(self._process_one, _KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            logger.error("sandbox %s (pid %d) did not end in %g s", self.name, process.pid, _KILL_TIMEOUT_S)
            process.kill()


def _has_ended(process: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(process, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _first_for_memory(pid: int) -> None:
    """Have the kernel end what is below process `pid` before anything else, however small, where this machine has no
    memory left; where this process may (as root), nothing below can take that back."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file:
        file.write(_FIRST_FOR_MEMORY)


def _limit_terminals(process_one: int) -> None:
    """Leave the sandbox of this process 1 `MOST_TERMINALS` pseudo-terminals (blocks for less than a millisecond).

    Only root may; another user's sandboxes share the machine's, which the kernel then gives to whoever comes first.
    """
    if os.geteuid() != 0:
        return
    try:
        namespace = os.open(f"/proc/{process_one}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # it is gone, which the next request says
    failed: list[str] = []
    try:
        thread = threading.Thread(target=_remount, args=(ctypes.CDLL(None, use_errno=True), namespace, failed))
        thread.start()
        thread.join()
    finally:
        os.close(namespace)
    if failed:
        logger.warning("the pseudo-terminals of a sandbox have no limit of their own (%s)", failed[0])


def _remount(libc: ctypes.CDLL, namespace: int, failed: list[str]) -> None:
    options = b"%s,max=%d" % (_AS_BUBBLEWRAP_MOUNTS, MOST_TERMINALS)
    flags = _MS_REMOUNT | _MS_NOSUID | _MS_NOEXEC
    # A thread may enter a mount namespace when it shares its root and work directory with no other.
    if (
        libc.unshare(_CLONE_FS) != 0
        or libc.setns(namespace, _CLONE_NEWNS) != 0
        or libc.mount(None, b"/dev/pts", None, ctypes.c_ulong(flags), options) != 0
    ):
        failed.append(os.strerror(ctypes.get_errno()))
