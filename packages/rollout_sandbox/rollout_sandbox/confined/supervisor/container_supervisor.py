"""The supervisor of a container: a host process that reaches into the container's network and ends its processes.

It answers on the same control socket as process 1 of a confined sandbox, and ends when that closes. Nothing
inside sees it, because it joins the container's user and network namespaces only; a signal goes to a process of the
container's cgroup or to none; and process 1, whose end is the container's, never runs again: it is traced and held
still, so that nobody else can trace it and nothing that is written into it is run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import ctypes
import os
import stat
import sys
import time

from . import file_access, messages, processes

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Iterable

_TOOL_VARIABLE = b"VF_STATE_SECRET="
"""In the environment of verifiers' tool servers."""
_CGROUPS = "/sys/fs/cgroup"
_PAUSE_S = 0.002
_SEIZE, _INTERRUPT = 0x4206, 0x4207
_EVERY_CHILD = 0x40000000
"""`__WALL`: `waitpid` waits for what is traced, too."""
_NEVER_FOR_MEMORY = b"-1000"
_ACCOUNTS = ("/etc/passwd", "/etc/group")
"""What podman and its runtime read before each command, without a limit of time or size."""
_MOST_ACCOUNT_BYTES = 1 << 20
_OF_PROGRAMS = ("collections.abc", "json", "shutil", "stat", "typing")
"""What the programs import that it runs on the container's files."""


class CannotGuard(Exception):
    """The container cannot be told from this machine; the message says in what."""


def _cgroup_of(process: int | str, controller: str = "pids") -> tuple[str, str]:
    """Return a process's cgroup of a controller: the hierarchy's directory and the path below it."""
    unified = ""
    with open(f"/proc/{process}/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                return f"{_CGROUPS}/{controllers}", path
            if not controllers:
                unified = path
    return _CGROUPS, unified


def _container_cgroup(pid: int) -> str:
    """Return the directory of the container's own cgroup (`CannotGuard`: it shares that of this process)."""
    root, path = _cgroup_of(pid)
    own_root, own = _cgroup_of("self")
    directory = root + path
    shared = root == own_root and (own + "/").startswith(path.rstrip("/") + "/")
    if shared or not os.path.isdir(directory):
        raise CannotGuard(f"it has no control group of its own here ({path or 'none'}): leave cgroups enabled")
    return directory


def _join(pid: int) -> None:
    """Join another user and network namespace of process `pid` (`CannotGuard`: it shares processes or network)."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("pid", "user", "net"):
        path = f"/proc/{pid}/ns/{kind}"
        if os.readlink(path) != os.readlink(f"/proc/self/ns/{kind}"):
            if kind == "pid":
                continue
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if libc.setns(fd, 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns({kind}): {os.strerror(ctypes.get_errno())}")
            os.close(fd)
            if kind == "user":
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)  # files that it makes need an owner that exists there
        elif kind != "user":
            raise CannotGuard(f"it shares the {kind} namespace of this machine: leave that to the runtime")


def _shield(pid: int) -> None:
    """Keep this machine's kernel from ending process `pid` for want of memory, as far as this process may: by a score,
    or outside of the group with the container's limit, where groups of memory stand apart from the others (cgroup v1).
    """
    root, path = _cgroup_of(pid, "memory")
    settings = [(f"/proc/{pid}/oom_score_adj", _NEVER_FOR_MEMORY)]
    if root != _CGROUPS and path == _cgroup_of(pid)[1]:
        settings.append((f"{root}{os.path.dirname(path)}/cgroup.procs", b"%d" % pid))
    for name, text in settings:
        try:
            with open(name, "wb", buffering=0) as file:
                file.write(text)
        except OSError:
            continue


def _hold(pid: int) -> None:
    """Trace process `pid` and hold it still, where the kernel lets this one; its parent still learns of its end."""

    def reap(*_: object) -> None:
        try:  # noqa: SIM105 - `contextlib` would have to be imported at every start
            os.waitpid(pid, os.WNOHANG | _EVERY_CHILD)
        except ChildProcessError:
            pass

    libc = ctypes.CDLL(None)
    if libc.ptrace(_SEIZE, pid, None, None) == 0 and libc.ptrace(_INTERRUPT, pid, None, None) == 0:
        os.waitpid(pid, _EVERY_CHILD)
        _signal.signal(_signal.SIGCHLD, reap)
        reap()


def _make_directory(pid: int, path: str) -> None:
    """Make a directory of the container that is missing, for the user of process `pid`; before anything runs there."""
    child = os.fork()
    if child:
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            raise CannotGuard(f"its working directory {path} cannot be made: name another, or make it in the image")
        return
    code = 1
    try:
        owner = os.stat(f"/proc/{pid}")
        os.chroot(f"/proc/{pid}/root")
        os.chdir("/")
        if not os.path.isdir(path):
            os.makedirs(path)
            os.chown(path, owner.st_uid, owner.st_gid)
        code = 0
    finally:
        os._exit(code)


def _is_short(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_ACCOUNT_BYTES


def _remove_endless(path: str) -> None:
    """Remove what is at `path`, or the link there, if reading it may take for ever."""
    try:
        found = os.stat(path)
        of_kernel = found.st_dev == os.stat("/proc").st_dev
        if not stat.S_ISDIR(found.st_mode) and (of_kernel or not _is_short(found)):
            os.unlink(path)
    except OSError:  # nothing is there, which is read at once
        pass


def _is_tool(pid: int) -> bool:
    return any(setting.startswith(_TOOL_VARIABLE) for setting in processes.environment(pid))


def _credentials(pid: int) -> tuple[int, int, list[int]]:
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.rstrip("\n").split(":", 1) for line in file)
    return int(lines["Uid"].split()[0]), int(lines["Gid"].split()[0]), [int(group) for group in lines["Groups"].split()]


class ContainerSupervisor(messages.MessageServer):
    """Serves one control socket for the container whose process 1 is `pid` here, until the host is gone."""

    def __init__(self, control: _socket.socket, pid: int, cgroup: str) -> None:
        super().__init__(control)
        self._pid = pid
        self._cgroup = cgroup
        self._credentials = _credentials(pid)
        self._marked: set[tuple[int, int]] = set()
        self._tools: set[tuple[int, int]] = set()

    def on_answer(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> None:
        """Fields: path. A process that sees the container's files as its user does looks there, and replies itself."""
        child = os.fork()
        if child:
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
                raise OSError("the container's files cannot be reached from outside")
            return
        code = 1
        try:
            own = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._enter()
            found = file_access.open_answer(fields[0], own)
            self.reply(identifier, b"ok", *((found, ()) if isinstance(found, bytes) else (b"", (found,))))
            code = 0
        finally:
            os._exit(code)

    def _enter(self) -> None:
        user, group, groups = self._credentials
        os.chroot(f"/proc/{self._pid}/root")
        os.chdir("/")
        os.setgroups(groups)
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)

    def on_accounts(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Remove what stands for the container's accounts if reading it may take for ever."""
        root = f"/proc/{self._pid}/root"
        try:
            usual = stat.S_ISDIR(os.lstat(f"{root}/etc").st_mode)
            usual = usual and all(_is_short(os.lstat(f"{root}{path}")) for path in _ACCOUNTS)
        except OSError:
            usual = False
        if usual:
            return b""
        if child := os.fork():
            os.waitpid(child, 0)
            return b""
        try:
            os.chroot(root)
            os.chdir("/")
            for path in _ACCOUNTS:
                _remove_endless(path)
        finally:
            os._exit(0)

    def on_program(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> None:
        """Fields: text of a Python program of ours, operands; with its three streams. A process that sees the
        container's files as its user does runs it, and replies itself with the exit code."""
        if child := os.fork():
            os.waitpid(child, 0)
            return
        if os.fork():  # whose child belongs to nobody here
            os._exit(0)
        code = 1
        try:
            for module in _OF_PROGRAMS:
                __import__(module)
            sys.meta_path.clear()  # nothing is imported of the container's
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
                os.close(fd)
            text, *operands = (os.fsdecode(field) for field in fields)
            sys.argv = ["", *operands]
            self._enter()
            try:
                exec(compile(text, "program", "exec"), {"__name__": "__main__"})
                sys.stdout.flush()
                code = 0
            except SystemExit as ended:
                os.write(2, str(ended.code).encode(errors="replace"))
            except Exception as error:  # noqa: BLE001 - said where its errors stand
                os.write(2, f"{type(error).__name__}: {error}".encode(errors="replace"))
            for number in range(3):
                os.close(number)
            self.reply(identifier, b"ok", b"%d" % code)
        finally:
            os._exit(code)

    def _members(self) -> set[int]:
        pids: set[int] = set()
        for directory, _, _ in os.walk(self._cgroup):
            try:
                with open(f"{directory}/cgroup.procs") as file:
                    pids.update(int(line) for line in file)
            except OSError:  # a group that went away meanwhile
                continue
        return pids

    def _table(self) -> processes.Table:
        """Every process of the container but its process 1, which adopts whatever the agent orphans."""
        found = [processes.process_of(pid) for pid in self._members() - {self._pid}]
        members = self._members()  # again: a pid may have gone to a process of the host before it was looked at
        return {process.pid: process for process in found if process is not None and process.pid in members}

    def _signal_each(self, table: processes.Table, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                # The pid may have gone to a process of the host since; from here on it cannot.
                now = processes.process_of(pid)
                if now is not None and now.started == table[pid].started:
                    _signal.pidfd_send_signal(fd, number)
            except ProcessLookupError:
                continue
            finally:
                os.close(fd)

    def _end_all(self, select_from: processes.Selection) -> None:
        deadline = time.monotonic() + processes.END_TIMEOUT_S
        first: set[tuple[int, int]] | None = None
        while True:
            table = self._table()
            left = [pid for pid in select_from(table) if table[pid].alive]
            first = first or {(pid, table[pid].started) for pid in left}
            if not left:
                return
            if time.monotonic() > deadline:
                if {(pid, table[pid].started) for pid in left} <= first:
                    return  # killed in a call that the kernel does not break off: they will not run again
                raise TimeoutError(f"processes {sorted(left)[:10]} did not end in {processes.END_TIMEOUT_S:g} s")
            # Stopped first, so that few are left that can fork while the others are killed.
            self._signal_each(table, left, processes.SIGSTOP)
            table = self._table()
            self._signal_each(table, select_from(table), processes.SIGKILL)
            time.sleep(_PAUSE_S)

    def on_mark(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Spare what runs now from `on_purge`."""
        found = self._table().values()
        self._marked = {(process.pid, process.started) for process in found}
        self._tools = {(process.pid, process.started) for process in found if _is_tool(process.pid)}
        return b""

    def _agents(self, table: processes.Table) -> set[int]:
        """All but what ran at the mark; of its children only those of tool servers, others could be made to spawn."""
        marked = {process.pid for process in table.values() if (process.pid, process.started) in self._marked}
        return processes.but(self._tools)(table) - marked

    def on_purge(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        self._end_all(self._agents)
        return b""

    def on_end(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Fields: command."""
        self._end_all(processes.of_command(-1, fields[0]))
        return b""

    def on_signal(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> bytes:
        """Fields: command, signal number."""
        table = self._table()
        self._signal_each(table, processes.of_command(-1, fields[0])(table), int(fields[1]))
        return b""


def main(control_fd: int, pid: int, workdir: str) -> None:
    """Serve the control socket `control_fd` for the container with process 1 `pid`, once its `workdir` is there."""
    control = _socket.socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)
    os.umask(0o022)
    try:
        cgroup = _container_cgroup(pid)
        _shield(pid)
        _join(pid)
        _hold(pid)
        _make_directory(pid, workdir)
    except (OSError, CannotGuard) as error:
        messages.send(control, (b"0", b"error", str(error).encode()))
        return
    supervisor = ContainerSupervisor(control, pid, cgroup)
    supervisor.reply(b"0", b"ready")
    while supervisor.serve():
        pass
