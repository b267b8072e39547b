"""How busy this machine is, measured: for the few tests in which seconds are the point.

A test that needs a time limit long enough for real work asks for `patience`; one whose promise is that something takes
no longer than so many seconds ends with `assert_no_longer`, which skips it where other work is measurably in the way.
"""

import os
import subprocess
import sys

import pytest

_SPIN = """
import time
wall, cpu = time.perf_counter(), time.process_time()
while time.process_time() - cpu < 0.1:
    pass
print((time.perf_counter() - wall) / (time.process_time() - cpu))
"""
_QUIET = 1.3
"""The clock may run so many times as fast as the CPU of a process that never waits, on a machine that is quiet."""


def slowdown() -> float:
    """How many times longer work takes here than alone on the machine: wall ÷ CPU of a spin on every core at once."""
    cores = len(os.sched_getaffinity(0))
    command = [sys.executable, "-I", "-S", "-c", _SPIN]
    spins = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    return max(1.0, *(float(spin.communicate()[0]) for spin in spins))


def patience(seconds: float) -> float:
    """A time limit that is `seconds` on a quiet machine, and longer in proportion on a busy one."""
    return seconds * slowdown()


def assert_no_longer(taken: float, limit: float) -> None:
    """Fail when `taken` is not below `limit` (both s); skip instead while the machine is too busy to tell.

    The last line of a test: what it skips is nothing but the time.
    """
    if taken < limit:
        return
    busy = slowdown()
    if busy > _QUIET:
        told = f"{taken:.2f} s of at most {limit:g}, and a spin takes {busy:.1f} times its CPU"
        pytest.skip(f"needs a quiet machine: {told}")
    pytest.fail(f"took {taken:.2f} s, which is not below {limit:g} s")
