"""What one sandbox may use: its host user id, its control groups, and the disk that is watched.

The first version of the control groups gives a directory per controller, the second one for all; both may be there at
once. Their names say whose they are, so that what a killed evaluation left is removed at the next start of any sandbox
in the same process namespace. Formats: proc(5) and the kernel's admin-guide/cgroup-v1 and cgroup-v2.

The group of a process that the kernel ended for want of memory counts it, whoever ran out of memory; the machine's
count has also what reached the limit of any group.
"""

import asyncio
import contextlib
import os
import re
import resource
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from verifiers.v1.errors import SandboxError

from rollout_sandbox.confined.bubblewrap import user_pool
from rollout_sandbox.confined.config import Bind, LocalSandboxConfig
from rollout_sandbox.confined.disk_use import MIN_FILE_BYTES
from rollout_sandbox.confined.interpreter import base_python
from rollout_sandbox.confined.supervisor.processes import process_of
from rollout_sandbox.confined.users import SandboxUser, UserPool

_NEARLY_BYTES = 1 << 20
"""The kernel takes memory in portions: so near to a limit, the next one may be too much."""


class MemoryKills(NamedTuple):
    """Counts the processes of a group that the kernel has ended for want of memory."""

    at_limit: int = 0
    below_limit: int = 0
    """Those for which the machine had none, although the group has never reached its limit."""


def kills_of_group(group: Path) -> MemoryKills:
    """Return how many of its processes the kernel has ended for want of memory."""
    for name in ("memory.events", "memory.oom_control"):
        if kills := _counts(group / name).get("oom_kill"):
            return MemoryKills(at_limit=kills) if _was_full(group) else MemoryKills(below_limit=kills)
    return MemoryKills()


def kills_of_machine() -> int:
    """Return how many processes the kernel of this machine has ended for want of memory since it started."""
    return _counts(Path("/proc/vmstat")).get("oom_kill", 0)


def _was_full(group: Path) -> bool:
    if (group / "memory.events").exists():
        events = _counts(group / "memory.events")
        return bool(events.get("max") or events.get("oom"))
    # The first version's count of failures stays 0 in some kernels: the most that was used tells it.
    for limit in ("memory", "memory.memsw"):
        with contextlib.suppress(OSError):
            used, most = (int((group / f"{limit}.{name}_in_bytes").read_text()) for name in ("max_usage", "limit"))
            if used >= most - _NEARLY_BYTES:
                return True
    return False


def _counts(file: Path) -> dict[str, int]:
    with contextlib.suppress(OSError):
        words = (line.split() for line in file.read_text().splitlines())
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}
    return {}


_COUNTED_BY_NAMESPACE = (5, 14)
"""The Linux release since which a limit of processes counts those of a user namespace, not all of the user's."""

_NO_ENTRIES: tuple[list[int], list[int]] = [], []


class SandboxLimits:
    """Holds what a sandbox may use, taken before it starts (blocking); `lent` is the user of another one."""

    def __init__(self, options: LocalSandboxConfig, lent: SandboxUser | None) -> None:
        self._options = options
        self._pool: UserPool | None = None
        self.user = lent
        """The host user id of its own that the sandbox has; None when it shares the evaluation's."""
        self.group: ControlGroup | None = None
        """None where there are none."""

    def take_user(self) -> None:
        """Take a user id, unless one is lent or it shares the evaluation's."""
        if self._options.own_user and self.user is None and (pool := user_pool(self._options.first_user)) is not None:
            try:
                self.user = pool.take()
            except OSError as error:
                raise SandboxError(f"no user id for the sandbox: {error}") from error
            self._pool = pool

    def make_group(self, name: str) -> None:
        if self._options.max_memory is None:
            return
        try:
            found = host_hierarchies()
            sweep_groups(found)
            self.group = ControlGroup(found, name, self._options.max_memory)
        except (OSError, ValueError) as error:
            raise SandboxError(f"no control group for the sandbox: {error}; see --env.sandbox.max-memory") from error

    @contextlib.contextmanager
    def settings(self) -> Iterator[dict[str, Any]]:
        """Give the arguments of the supervisor's `CommandLimits`, whose descriptors are open within this context."""
        release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
        counted_apart = self.user is not None or release >= _COUNTED_BY_NAMESPACE
        with self.group.entries() if self.group else contextlib.nullcontext(_NO_ENTRIES) as (groups, groups_alone):
            yield {
                "processes": self._options.max_processes if counted_apart else None,
                "open_files": self._open_files(),
                "file_bytes": self._options.max_disk,
                "groups": groups,
                "groups_alone": groups_alone,
                "memory_bytes": None if self.group and self.group.limits_memory else self._options.max_memory,
            }

    def _open_files(self) -> int | None:
        """Less than what this process or the sandbox's process 1 has: the kernel counts descriptors in flight by user,
        and a sender's own limit says how many are too many for it."""
        wanted = self._options.max_open_files
        if wanted is None:
            return None
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return min(wanted, (hard if self.user is not None else soft) // 2)

    def require_readable(self, binds: Sequence[Bind]) -> None:
        """Refuse, by a `SandboxError`, a bind that the sandbox's user could not read."""
        if self.user is None:
            return
        for bind in binds:
            try:
                found = bind.source.stat()
            except OSError:
                continue  # bubblewrap says it better
            if found.st_uid == self.user.uid:
                continue  # of the sandbox that lent its user
            needed = 0o005 if bind.source.is_dir() else 0o004
            if found.st_mode & needed != needed:
                raise SandboxError(
                    f"{bind.source} is closed to the user id of the sandbox: chmod -R go+rX it, or share the "
                    "evaluation's id (--env.sandbox.own-user false)"
                )

    def release(self) -> None:
        """Give back what was taken, once everything inside has ended; idempotent."""
        if self.group is not None:
            self.group.remove()
            self.group = None
        if self._pool is not None and self.user is not None:
            self._pool.give_back(self.user)
            self.user = None


_CONTROLLERS = ("memory", "cpu")
_FREEZER = "freezer"
"""A controller of the first version only; the second version freezes any group."""
_MAIN, _ALONE = "main", "alone"
_SOCKETS_PART, _SOCKETS_BYTES = 32, 16 << 20
"""What sockets of networks may hold beside the limit, where the first version counts them apart: the kernel bounds all
of a machine's together, and beyond that everybody's wait."""
_CPU_PART = 4
"""A sandbox's weight is one of so many parts of a usual group's: the evaluation, which serves every agent its model
calls, comes before what any of them computes."""
_TIMEOUT_S = 5.0
_PAUSE_S = 0.002


@dataclass(frozen=True)
class Hierarchies:
    """The directories of this process's own groups, in which it looks for room for others."""

    by_controller: dict[str, Path]
    """Of the first version, by the name of the controller."""
    unified: tuple[Path, ...] = ()
    """Of the second version: its own group, and the one above it if that is visible."""


def hierarchies(own_groups: str, mounts: str) -> Hierarchies:
    """Return what /proc/self/cgroup and /proc/self/mountinfo name."""
    own = {}
    for line in own_groups.splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    found: dict[str, Path] = {}
    unified: tuple[Path, ...] = ()
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        file_system, _, options = kind.split(" ", 2)
        root, point = (_unescaped(field) for field in mount.split(" ")[3:5])
        if file_system == "cgroup2" and not unified and (here := _below(own.get(""), root, point)):
            unified = (here,) if str(here) == point else (here, here.parent)
        for name in {*options.split(",")} & {*_CONTROLLERS, _FREEZER} if file_system == "cgroup" else ():
            if here := _below(own.get(name), root, point):
                found.setdefault(name, here)
    return Hierarchies(found, unified)


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _below(path: str | None, root: str, point: str) -> Path | None:
    if path is None or not PurePosixPath(path).is_relative_to(root):
        return None
    return Path(point, PurePosixPath(path).relative_to(root))


def host_hierarchies() -> Hierarchies:
    return hierarchies(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


class ControlGroup:
    """The groups of one sandbox; those that cannot be had are left out (see `limits_memory` and `can_freeze`)."""

    def __init__(self, found: Hierarchies, name: str, memory_bytes: int | None) -> None:
        self._made: list[Path] = []
        self._entries: list[Path] = []
        self._entries_alone: list[Path] = []
        self._memory: Path | None = None
        self._frozen: Path | None = None
        self._listing: Path | None = None
        try:
            # It says whose it is: process namespace, process and its start.
            self._make(found, f"{_prefix()}{os.getpid()}-{_started(os.getpid())}-{name}", memory_bytes)
        except BaseException:
            self.remove()
            raise

    @property
    def limits_memory(self) -> bool:
        return self._memory is not None

    @property
    def can_freeze(self) -> bool:
        return self._frozen is not None

    def _make(self, found: Hierarchies, name: str, memory_bytes: int | None) -> None:
        unified = _delegated(found.unified)
        if unified is not None and (group := self._directory(unified / name)) is not None:
            self._memory = group if memory_bytes is not None and _set_memory(group, memory_bytes) else None
            _lower_weight(group)
            for part, entries in ((_MAIN, self._entries), (_ALONE, self._entries_alone)):
                if (made := self._directory(group / part)) is not None:
                    entries.append(made / "cgroup.procs")
            self._frozen = group / _MAIN
            return
        for controller, base in found.by_controller.items():
            if controller == _FREEZER or (group := self._directory(base / name)) is None:
                continue
            if controller == "memory" and memory_bytes is not None and _set_memory(group, memory_bytes):
                self._memory = group
            _lower_weight(group)
            # `tasks`, not `cgroup.procs`: a thread that moves itself needs no lock of the whole system's (13 ms).
            self._entries.append(group / "tasks")
            self._entries_alone.append(group / "tasks")
            self._listing = group / "cgroup.procs"
        freezers = [*found.unified[:1], *filter(None, [found.by_controller.get(_FREEZER)])]
        if self._listing is not None and freezers:
            self._frozen = self._directory(freezers[0] / name)

    def _directory(self, path: Path) -> Path | None:
        try:
            path.mkdir()
        except OSError:
            return None
        self._made.append(path)
        return path

    @contextlib.contextmanager
    def entries(self) -> Iterator[tuple[list[int], list[int]]]:
        """Give descriptors through which a process enters the groups: of every command, and of one that runs alone."""
        with contextlib.ExitStack() as stack:
            opened: tuple[list[int], list[int]] = [], []
            for paths, fds in zip((self._entries, self._entries_alone), opened, strict=True):
                for path in paths:
                    fds.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
                    stack.callback(os.close, fds[-1])
            yield opened

    def freeze(self) -> bool:
        """Hold every process still that did not enter alone, also one that arranged to be woken from a signal
        (blocking); False if one would not be."""
        assert self._frozen is not None
        deadline = time.monotonic() + _TIMEOUT_S
        try:
            _freeze(self._frozen, True)
            while True:
                outside = self._outside()
                for pid in outside:
                    with contextlib.suppress(ProcessLookupError):
                        (self._frozen / "cgroup.procs").write_text(str(pid))
                if not outside and _is_frozen(self._frozen):
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(_PAUSE_S)
        except OSError:
            return False

    def _outside(self) -> set[int]:
        """Return the processes that have to be moved to be frozen: all, where only the first version counts."""
        if self._listing is None or self._frozen is None:
            return set()
        return _pids(self._listing) - _pids(self._frozen / "cgroup.procs")

    def thaw(self) -> None:
        if self._frozen is not None:
            with contextlib.suppress(OSError):
                _freeze(self._frozen, False)

    def memory_kills(self) -> MemoryKills:
        """Return the same as `kills_of_group`."""
        return MemoryKills() if self._memory is None else kills_of_group(self._memory)

    def remove(self) -> None:
        """Remove the groups, whose processes have ended; idempotent, waits a moment for the last to be gone."""
        while self._made:
            group, deadline = self._made.pop(), time.monotonic() + _TIMEOUT_S
            while time.monotonic() <= deadline:
                try:
                    group.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(_PAUSE_S)


def _prefix() -> str:
    return f"confined-sandbox-{os.stat('/proc/self/ns/pid').st_ino}-"


def _started(pid: int) -> int:
    found = process_of(pid)
    return 0 if found is None else found.started


def _delegated(candidates: Sequence[Path]) -> Path | None:
    """Return the group of the second version below which children can have a memory limit; made so if need be."""
    for number, group in enumerate(candidates):
        with contextlib.suppress(OSError):
            control = group / "cgroup.subtree_control"
            missing = {*_CONTROLLERS} & {*(group / "cgroup.controllers").read_text().split()}
            missing -= {*control.read_text().split()}
            # Refused where the group has processes of its own; the one above is not ours to change.
            if missing and number == 0:
                with contextlib.suppress(OSError):
                    control.write_text(" ".join(f"+{name}" for name in sorted(missing)))
            if "memory" in control.read_text().split() and os.access(group, os.W_OK):
                return group
    return None


def _set_memory(group: Path, limit: int) -> bool:
    for memory, swap in (("memory.max", "memory.swap.max"), ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")):
        if (group / memory).exists():
            (group / memory).write_text(str(limit))
            sockets = group / "memory.kmem.tcp.limit_in_bytes"
            if sockets.exists():  # the second version counts them as any memory
                sockets.write_text(str(max(limit // _SOCKETS_PART, _SOCKETS_BYTES)))
            with contextlib.suppress(OSError):  # a kernel without swap accounting
                (group / swap).write_text("0" if swap == "memory.swap.max" else str(limit))
            return True
    return False


def _lower_weight(group: Path) -> None:
    for name in ("cpu.weight", "cpu.shares"):
        with contextlib.suppress(OSError):  # a group of another controller, or of the other version
            weight = group / name
            weight.write_text(str(int(weight.read_text()) // _CPU_PART))


def _freeze(group: Path, hold: bool) -> None:
    if (first := group / "freezer.state").exists():
        first.write_text("FROZEN" if hold else "THAWED")
    else:
        (group / "cgroup.freeze").write_text("1" if hold else "0")


def _is_frozen(group: Path) -> bool:
    if (first := group / "freezer.state").exists():
        return first.read_text().strip() == "FROZEN"
    return "frozen 1" in (group / "cgroup.events").read_text()


def _pids(listing: Path) -> set[int]:
    return {int(line) for line in listing.read_text().split()}


def sweep_groups(found: Hierarchies) -> None:
    """Remove the groups of evaluations of this process namespace that are gone."""
    prefix = _prefix()
    for base in {*found.by_controller.values(), *found.unified}:
        for group in base.glob(f"{prefix}*"):
            pid, started = group.name.removeprefix(prefix).split("-")[:2]
            if _started(int(pid)) == int(started):
                continue
            with contextlib.suppress(OSError):
                for path in (*group.glob("*/"), group):
                    with contextlib.suppress(OSError):
                        _freeze(path, False)
                    path.rmdir()


_MEASURE_EVERY_S = 30.0
_PARTS = 16
_TOOLS = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

Relieve = Callable[[bool], Awaitable[int]]
"""Ends what the commands have started, or (True) the commands as well; returns how many processes it killed."""


def used_bytes(directory: Path, starter: int) -> int | None:
    """Return what the files below `directory`, on one file system, take, with 4 KiB for each, and those that were
    removed and descendants of `starter` hold (blocking); None if that takes too long."""
    argv = [base_python(), "-I", "-S", str(Path(__file__).with_name("disk_use.py")), str(directory), str(starter)]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=60.0, check=False, env=dict(_TOOLS))
    except subprocess.TimeoutExpired:
        return None
    return int(done.stdout) if done.returncode == 0 else None


class DiskWatch:
    """Watches one sandbox from `run` on; `kills` counts the processes it had ended."""

    def __init__(self, directory: Path, starter: int, limit_bytes: int, relieve: Relieve) -> None:
        self._directory = directory
        self._starter = starter
        self._limit = limit_bytes
        self._relieve = relieve
        self._tolerated = limit_bytes
        self.kills = 0

    def _room(self) -> tuple[int, int]:
        found = os.statvfs(self._directory)
        return found.f_bavail * found.f_frsize, found.f_favail * MIN_FILE_BYTES

    async def run(self) -> None:
        room, measured = self._room(), time.monotonic()
        while True:
            await asyncio.sleep(0.5)
            now, late = self._room(), time.monotonic() - measured > _MEASURE_EVERY_S
            shrunk = any(before - after >= self._limit // _PARTS for before, after in zip(room, now, strict=True))
            if not shrunk and not late and self._tolerated == self._limit:
                room = max(room[0], now[0]), max(room[1], now[1])
                continue
            room, measured = now, time.monotonic()
            used = await asyncio.to_thread(used_bytes, self._directory, self._starter)
            if used is None:
                continue
            if used > self._tolerated:
                self.kills += await self._relieve(used > self._limit + self._limit // 2)
            # An agent that is over the limit may remove files, if it only does not add any.
            self._tolerated = max(self._limit, used)
