"""How long a worker may take for one answer, by its CPU and by the clock.

Invariant: an answer that hangs costs its deadline and less than a second, also on a machine that is twice as busy as
it should be; a machine on which a worker gets next to no CPU is an error, so that no right answer is a 0 for it.
"""

import asyncio
import os
import time
from pathlib import Path

from opencode_rubrics.errors import ScoringError
from opencode_rubrics.math.worker_parent import Worker

_WALL_GRACE = 0.6
_FIRST_LOOK = 0.5


async def stop(asking: "asyncio.Future[bytes]", worker: Worker) -> None:
    """End a worker in the middle of a request."""
    asking.cancel()
    # Its descriptor is closed only when nobody waits on it: the number may be given out again at once.
    await asyncio.wait({asking})
    await worker.end()


async def in_time(asking: "asyncio.Future[bytes]", pid: int, seconds: float, brief: bool = False) -> bool:
    """Wait for a worker's reply; False if its time is up, which with `brief` no lack of CPU prolongs.

    The worker ends itself at its CPU deadline. On a busy machine that can be much later by the clock, so a worker
    that had a quarter of its CPU time when the clock is 0.6 seconds past the deadline counts as hung, too.

    Raises:
        ScoringError: the worker got next to no CPU.
    """
    started, grace = time.monotonic(), seconds + _WALL_GRACE
    if await _done(asking, min(_FIRST_LOOK, seconds)):
        return True
    before = _cpu_seconds(pid)
    if await _done(asking, started + grace - time.monotonic()):
        return True
    if brief or _cpu_seconds(pid) - before >= seconds / 4:
        return False
    wall = 4 * seconds + 10
    if await _done(asking, started + wall - time.monotonic()):
        return True
    raise ScoringError(
        f"a math worker got less than {seconds:g} s of CPU in {wall:g} s: this machine is overloaded; lower the number "
        "of concurrent rollouts or max_workers"
    )


async def _done(asking: "asyncio.Future[bytes]", seconds: float) -> bool:
    done, _ = await asyncio.wait({asking}, timeout=max(0.0, seconds))
    return bool(done)


def _cpu_seconds(pid: int) -> float:
    """CPU that a process has used (proc(5), fields 14 and 15 of stat); 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
