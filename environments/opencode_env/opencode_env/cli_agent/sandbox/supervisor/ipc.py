"""What System V keeps for nobody: shared memory and messages outlive the processes that made them.

Invariant: what a process is attached to stays.
"""

from __future__ import annotations

import ctypes

from . import processes

_IPC_RMID = 0
_TABLE = "/proc/sysvipc/"


def _rows(kind: str) -> list[dict[bytes, int]]:
    """Return one of the kernel's tables, by its own names; proc(5)."""
    try:
        with open(_TABLE + kind, "rb") as file:
            names = file.readline().split()
            return [dict(zip(names, map(int, line.split()), strict=True)) for line in file]
    except OSError:  # a kernel without it
        return []


def remove_abandoned() -> None:
    """Remove segments that nobody is attached to, and queues whose last sender has ended."""
    libc = ctypes.CDLL(None)
    for row in _rows("shm"):
        if row[b"nattch"] == 0:
            libc.shmctl(row[b"shmid"], _IPC_RMID, None)
    queues = _rows("msg")
    living = processes.table() if queues else {}
    for row in queues:
        if row[b"lspid"] not in living:
            libc.msgctl(row[b"msqid"], _IPC_RMID, None)
