"""Processes of an attack: each computes for the kernel's CPU shares by itself, and dies with the one that made it."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable

from benchmarks.attack.tally import Tally

_PR_SET_PDEATHSIG = 1

Tell = Callable[[int, object], None]
"""Says how much a child holds, and what refused it more (nothing: empty)."""


def child_process(work: Callable[[], None]) -> int:
    """Fork a process that works for ever in a session of its own, and dies with this one."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A session is what the kernel shares the CPU out to.
    os.setsid()
    try:
        work()
    finally:
        os._exit(0)


def end_children(pids: list[int]) -> None:
    """Kill them and wait for their ends."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def in_children(tally: Tally, count: int, work: Callable[[Callable[[int, object], None]], None]) -> None:
    """Let children work, which tell what each holds and what was refused; their sum is what is held."""
    reads, writes = os.pipe()

    def child(number: int) -> None:
        work(lambda held, error: _tell(writes, f"{number} {held} {error}".replace("\n", " ")))

    children = [child_process(lambda number=number: child(number)) for number in range(count)]  # type: ignore[misc]
    held = [0] * count
    try:
        for line in os.fdopen(reads, buffering=1):
            number, amount, error = line.rstrip("\n").split(" ", 2)
            tally.tries += 1
            if error:
                tally.refuse(error)
            held[int(number)] = int(amount)
            tally.held(sum(held))
    finally:
        end_children(children)


def _tell(writes: int, line: str) -> None:
    """One line to the process that counts."""
    os.write(writes, line[:300].encode(errors="replace") + b"\n")
