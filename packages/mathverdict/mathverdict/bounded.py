"""Runs one comparison under limits that hold in C code too.

Invariant: past its CPU seconds the process is ended by the kernel, not by an exception that a library could swallow.
CPU time and not wall-clock time, so that a busy machine never makes a right answer a wrong one.
"""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEADLINE_SIGNAL = signal.SIGPROF
BROKE_DOWN = frozenset({-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL})
"""Exit codes of a process that broke down over its answer; one that was killed (-9) was the machine's doing."""
_MEMORY_BYTES = 3 << 30
"""Address space of a process that compares: beyond it Python raises `MemoryError`."""


@contextmanager
def cpu_deadline(seconds: float) -> Iterator[None]:
    """End this process by `DEADLINE_SIGNAL` when the body uses more CPU seconds."""
    signal.signal(DEADLINE_SIGNAL, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def limit_memory() -> None:
    """Bound this process's address space, and let it leave no core dump."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def in_child(work: Callable[[], str], seconds: float) -> str | int:
    """Return what `work` returns in a fork with `seconds` of CPU; the exit code of the fork if it returns nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            limit_memory()
            with cpu_deadline(seconds):
                data = work().encode()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(data)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code or not result else result.decode()
