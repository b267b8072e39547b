"""What System V keeps for nobody: shared memory, messages and semaphores outlive the processes that made them.

Invariant: what a process is attached to stays, and semaphores do while there is a process.
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
    """Remove segments that nobody is attached to, queues whose last sender has ended, and semaphores left alone."""
    libc = ctypes.CDLL(None)
    for row in _rows("shm"):
        if row[b"nattch"] == 0:
            libc.shmctl(row[b"shmid"], _IPC_RMID, None)
    queues, semaphores = _rows("msg"), _rows("sem")
    living = processes.table() if queues or semaphores else {}
    for row in queues:
        if row[b"lspid"] not in living:
            libc.msgctl(row[b"msqid"], _IPC_RMID, None)
    for row in semaphores if not living else ():
        libc.semctl(row[b"semid"], 0, _IPC_RMID)
