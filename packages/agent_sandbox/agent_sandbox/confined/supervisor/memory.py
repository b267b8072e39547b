"""A watch over the resident memory of all processes inside, for hosts on which no control group can be had.

Invariant: it ends one process at a time, the largest, as the kernel does it in a group that is out of memory. What no
process has mapped (files in memory, buffers of pipes and sockets) it does not see.
"""

from __future__ import annotations

import os

from .processes import SIGKILL, signal_each

LOOK_EVERY_S = 0.25
_PRIVATE = (b"RssAnon:", b"RssShmem:")
_KIB = 1024


def _kibibytes(path: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of some lines of a file like /proc/PID/status, 0 when the process is gone."""
    try:
        with open(path, "rb") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(names))
    except OSError:
        return 0


def end_largest_beyond(limit_bytes: int) -> bool:
    """Kill the largest process if all together are beyond the limit; returns whether it did."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    if sum(_kibibytes(f"/proc/{pid}/status", _PRIVATE) for pid in pids) * _KIB <= limit_bytes:
        return False
    # What processes share was counted for each of them; these numbers cost more and count it once.
    sizes = {pid: _kibibytes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")) for pid in pids}
    if sum(sizes.values()) * _KIB <= limit_bytes:
        return False
    signal_each([max(sizes, key=lambda pid: sizes[pid])], SIGKILL)
    return True
