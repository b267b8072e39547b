"""The process table of the sandbox, and ending parts of it.

Invariant: `end_all` returns only when no selected process will run again. Every process of the namespace is stopped by
one `kill(-1)`, which the kernel makes atomic against `fork`, so that nothing can outrun the selection that follows.
What was killed in a call that the kernel does not break off, such as a long `sync`, is not waited for to the end.
"""

from __future__ import annotations

import ctypes
import os
import time

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Table = dict[int, "Process"]
    Selection = Callable[[Table], set[int]]

COMMAND_VARIABLE = b"SANDBOX_COMMAND"
SIGKILL, SIGCONT, SIGSTOP = 9, 18, 19
OUTRUN_AFTER_S = 5.0
END_TIMEOUT_S = 20.0
"""How long what was killed is waited for."""
_PAUSE_S = 0.002
_IPC_RMID = 0
_POSIX_QUEUES = "/dev/mqueue"
LOOK_EVERY_S = 0.25
"""Between two looks at the memory of all."""
_KIB = 1024


class OutrunError(Exception):
    """Selected processes go on making new ones."""


class Process:
    """One line of the table; `started` is in clock ticks and with `pid` identifies a process for ever."""

    __slots__ = ("alive", "parent", "pid", "session", "started")

    def __init__(self, pid: int, parent: int, session: int, started: int, alive: bool) -> None:
        self.pid = pid
        self.parent = parent
        self.session = session
        self.started = started
        self.alive = alive


def process_of(pid: int) -> Process | None:
    """Return one line of the table, None when there is no such process any more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:  # it ended meanwhile
        return None
    # The name, in parentheses, may itself hold anything.
    fields = stat[stat.rindex(b")") + 2 :].split()
    threads = int(fields[17])
    # A main thread that ended alone is shown as a zombie while its siblings still run.
    alive = fields[0] not in (b"Z", b"X") or threads > 1
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), alive)


def table() -> Table:
    """Return all processes of the sandbox but process 1."""
    found = (process_of(int(name)) for name in os.listdir("/proc") if name.isdigit() and name != "1")
    return {process.pid: process for process in found if process is not None}


def with_descendants(processes: Table, roots: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def environment(pid: int) -> list[bytes]:
    """Return the variables that a process was started with, as NAME=value; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def of_command(leader: int, command: bytes) -> Selection:
    """Select a command's session, the processes that carry its environment variable, and their descendants."""
    variable = COMMAND_VARIABLE + b"=" + command

    def selection(processes: Table) -> set[int]:
        roots = [p.pid for p in processes.values() if p.session == leader or variable in environment(p.pid)]
        return with_descendants(processes, roots)

    return selection


def but(survivors: set[tuple[int, int]]) -> Selection:
    """Select everything but the given (pid, started) processes and their descendants."""

    def selection(processes: Table) -> set[int]:
        roots = [p.pid for p in processes.values() if (p.pid, p.started) in survivors]
        return set(processes) - with_descendants(processes, roots)

    return selection


def signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end_all(select_from: Selection, reap: Callable[[], None]) -> None:
    """Kill and reap what the selection names until nothing of it is left; an `OutrunError` if after `OUTRUN_AFTER_S`
    seconds there are still processes that started meanwhile."""
    started = time.monotonic()
    first: set[tuple[int, int]] | None = None
    while True:
        signal_each([-1], SIGSTOP)
        processes = table()
        selected = select_from(processes)
        signal_each(selected, SIGKILL)
        signal_each([-1], SIGCONT)
        reap()
        left = {(pid, processes[pid].started) for pid in selected if processes[pid].alive}
        if not left:
            return
        first = left if first is None else first
        taken = time.monotonic() - started
        if taken > OUTRUN_AFTER_S and left - first:
            raise OutrunError
        if taken > END_TIMEOUT_S:
            return
        time.sleep(_PAUSE_S)


def end_everything(reap: Callable[[], None]) -> None:
    """Kill and reap all processes; one `kill(-1)` reaches them all at once, so that none is left to fork."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while True:
        signal_each([-1], SIGKILL)
        reap()
        if time.monotonic() > deadline or not any(process.alive for process in table().values()):
            return
        time.sleep(_PAUSE_S)


def _kibibytes(path: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of some lines of a file like /proc/PID/status, 0 when the process is gone."""
    try:
        with open(path, "rb") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(names))
    except OSError:
        return 0


def end_largest_beyond(limit_bytes: int) -> bool:
    """Kill the largest process if all together are beyond the limit, as the kernel does it in a control group, for
    hosts on which none can be had; returns whether it did. What no process has mapped is not seen."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    if sum(_kibibytes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:")) for pid in pids) * _KIB <= limit_bytes:
        return False
    # What processes share was counted for each of them; these numbers cost more and count it once.
    sizes = {pid: _kibibytes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids}
    if sum(sizes.values()) * _KIB <= limit_bytes:
        return False
    signal_each([max(sizes, key=lambda pid: sizes[pid])], SIGKILL)
    return True


def _rows(kind: str) -> list[dict[bytes, int]]:
    """Return one of the kernel's tables, by its own names; proc(5)."""
    try:
        with open(f"/proc/sysvipc/{kind}", "rb") as file:
            names = file.readline().split()
            return [dict(zip(names, map(int, line.split()), strict=True)) for line in file]
    except OSError:  # a kernel without it
        return []


def remove_abandoned() -> None:
    """Remove what System V keeps for nobody: shared memory that nobody is attached to, queues whose last sender has
    ended, and what is left alone."""
    libc = ctypes.CDLL(None)
    for row in _rows("shm"):
        if row[b"nattch"] == 0:
            libc.shmctl(row[b"shmid"], _IPC_RMID, None)
    queues, semaphores = _rows("msg"), _rows("sem")
    named = os.listdir(_POSIX_QUEUES) if os.path.isdir(_POSIX_QUEUES) else []
    living = table() if queues or semaphores or named else {}
    for row in queues:
        if row[b"lspid"] not in living:
            libc.msgctl(row[b"msqid"], _IPC_RMID, None)
    for row in semaphores if not living else ():
        libc.semctl(row[b"semid"], 0, _IPC_RMID)
    for name in named if not living else ():
        os.unlink(f"{_POSIX_QUEUES}/{name}")
