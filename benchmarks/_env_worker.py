"""verifiers' environment server, watched from within its own process: a program of its own.

It prints `READY address pid`. On standard input it takes `begin` (watch from here on), `watched` (what was seen since)
and `held` (what the process holds now), each answered by one line of JSON, and the end of the input as its own.

Run: python benchmarks/_env_worker.py --config FILE
"""

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
sys.path.append(str(Path(__file__).parent / "plugins"))

from verifiers.v1.serve.server import EnvServer
from verifiers.v1.utils.loaders import resolve_env_config

TICK_SECONDS = 0.01
TICKS_PER_LOOK = 20
MANY_TIMERS = 10_000
"""More than a worker has that are due."""
LISTENING = "0A"
"""A socket's state in the kernel's table."""
POOLED = "asyncio_"
"""How the threads are named that wait for blocking calls; their number grows to a bound of its own."""
OF_A_ROLLOUT = ("Trace", "RolloutSession", "Rollout", "GuardedSession", "Gateway", "History", "Registered", "Episode")
"""Classes of which a rollout that has ended leaves no object."""


class Watch:
    """How late the event loop is, and how large the process."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was seen."""
        self._lags: list[float] = []
        self._peak = resident()
        self._cpu = sum(os.times()[:2])

    async def run(self) -> None:
        """Watch. Something is due at every tick: a loop that is held up for a second is late for a hundred of them."""
        loop = asyncio.get_running_loop()
        due, looks = loop.time(), 0
        while True:
            due += TICK_SECONDS
            await asyncio.sleep(due - loop.time())
            now = loop.time()
            self._lags.append(now - due)
            while due + TICK_SECONDS <= now:
                due += TICK_SECONDS
                self._lags.append(now - due)
            looks += 1
            if looks % TICKS_PER_LOOK == 0:
                self._peak = max(self._peak, resident())

    def seen(self) -> dict[str, float]:
        """Lags (s), the process's largest size and the one now (bytes), and CPU time (s)."""
        lags = sorted(self._lags)
        at = {f"lag_p{share}": lags[min(len(lags) - 1, len(lags) * share // 100)] for share in (50, 99)}
        cpu = sum(os.times()[:2]) - self._cpu
        sizes = {"peak": self._peak, "resident": resident()}
        return {**at, "lag_max": lags[-1], **sizes, "cpu": cpu}


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def held() -> dict[str, int]:
    """What this process holds now."""
    await forget_cancelled_timers()
    gc.collect()
    of_rollouts = Counter(name for one in gc.get_objects() if (name := class_of(one)) in OF_A_ROLLOUT)
    children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(os.listdir("/proc/self/fd")) - kept_connections(),
        "threads": sum(not thread.name.startswith(POOLED) for thread in threading.enumerate()),
        "processes": sum(len(pids) for pids in children),
        **{name: of_rollouts[name] for name in OF_A_ROLLOUT},
    }


async def forget_cancelled_timers() -> None:
    """Have the event loop let go of timers that were cancelled, which hold the context of the rollout that set them (a
    deadline of 24 hours on each command of Prime's SDK): it does when they are most of its timers."""
    loop = asyncio.get_running_loop()
    for _ in range(MANY_TIMERS):
        loop.call_later(1.0, gc.isenabled).cancel()
    await asyncio.sleep(0)


def kept_connections() -> int:
    """Connections that this process opened to others: verifiers keeps up to 100 to the model for the next calls."""
    sockets = {target for link in Path("/proc/self/fd").iterdir() if (target := target_of(link)).startswith("socket:")}
    table = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    own = [fields for fields in table if f"socket:[{fields[9]}]" in sockets]
    listening = {fields[1] for fields in own if fields[3] == LISTENING}
    return sum(fields[3] != LISTENING and fields[1] not in listening for fields in own)


def target_of(link: Path) -> str:
    """Where a descriptor leads; nowhere, when it is closed meanwhile."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def class_of(one: object) -> str:
    """The name of an object's class; of a generic one without its parameters."""
    return type(one).__name__.partition("[")[0]


async def obey(watch: Watch) -> None:
    """Do what standard input says, to its end."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while order := (await lines.readline()).decode().strip():
        answer: dict[str, float] | dict[str, int] = {}
        if order == "begin":
            gc.collect()
            watch.begin()
        else:
            answer = watch.seen() if order == "watched" else await held()
        print(json.dumps(answer), flush=True)


async def serve(fields: dict[str, object]) -> None:
    """Serve the environment of a configuration until the orders end."""
    server = EnvServer(resolve_env_config(fields), "tcp://127.0.0.1:0")
    watch = Watch()
    beside: Sequence[asyncio.Task[None]] = [asyncio.create_task(watch.run()), asyncio.create_task(server.run())]
    print(f"READY {server.address} {os.getpid()}", flush=True)
    await obey(watch)
    for task in beside:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*beside)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    asyncio.run(serve(json.loads(options.config.read_text())))


if __name__ == "__main__":
    main()
