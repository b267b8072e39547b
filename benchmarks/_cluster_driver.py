"""Whoever plays rollouts, here or on nodes of a Ray cluster that it starts on this machine: a program of its own.

It prints `READY pid`. On standard input it takes `play N K` (N rollouts, K at once), `idle SECONDS` and `record BYTES`,
each answered by one line of JSON, and the end of the input, SIGTERM and Ctrl-C as its own. It starts the nodes itself,
so that all that runs for it descends from it.

Run: python benchmarks/_cluster_driver.py --config FILE --url URL [--nodes 2]
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = Path(__file__).parent / "plugins"
sys.path[0] = str(ROOT)
sys.path.append(str(PLUGINS))

from verifiers.v1.env import RunSlot
from verifiers.v1.episode import WireEpisode
from verifiers.v1.serve.delta import dump, pack, unpack
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from benchmarks._hosted import Hosted
from benchmarks._measure import adopt_orphans, percentile
from examples.cluster.nodes import cluster_nodes, cluster_variables, until_ended
from tests.report import made

TICK_SECONDS = 1.0
TURNS = 225
"""Of the record that crosses."""
REPEATS = 20


class Records:
    """Gives a record of so many bytes as a worker gives it, or the same bytes as they are."""

    def __init__(self, size: int) -> None:
        trace = made.trace(1, turns=TURNS, tokens=True)
        padding = (size - len(json.dumps(trace))) // TURNS
        for node in trace["nodes"]:
            node["message"]["content"] += "x" * (padding * (node["message"]["role"] == "tool"))
        task = {"type": "Task", "data": {"idx": 0}}
        self._episode = WireEpisode.model_validate({"task": task, "traces": [trace | {"task": task}]})
        self._bytes = pack(dump(self._episode))

    def packed(self) -> bytes:
        """Pack it."""
        return pack(dump(self._episode))

    def copied(self) -> bytes:
        """Nothing is done."""
        return self._bytes


async def record(size: int) -> dict[str, Any]:
    """Seconds until a record that is packed on a node is read here, and until its bytes are here; the least of some."""
    import ray

    remote: Any = ray
    node = remote.remote(Records).options(num_cpus=0).remote(size)
    seconds: dict[str, list[float]] = {"packed": [], "copied": []}
    for _ in range(REPEATS):
        for name, taken in seconds.items():
            started = time.perf_counter()
            found: bytes = await getattr(node, name).remote()
            if name == "packed":
                WireEpisode.model_validate(unpack(found))
            taken.append(time.perf_counter() - started)
    remote.kill(node)
    return {"bytes": len(found), **{name: min(taken) for name, taken in seconds.items()}}


async def lags(found: list[float]) -> None:
    """Note by how much this loop is late."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        found.append(loop.time() - due)


async def play(hosted: Hosted, count: int, at_once: int) -> dict[str, Any]:
    """Rollouts of the first task; wall seconds, this process's CPU-seconds, and the turns of each."""
    started, cpu = time.monotonic(), time.process_time()
    episodes = await hosted.run([RunSlot(hosted.slots[0].task) for _ in range(count)], at_once)
    turns = [trace.num_turns for episode in episodes for trace in episode.traces]
    return {"wall": time.monotonic() - started, "own": time.process_time() - cpu, "turns": turns}


async def idle(seconds: float) -> dict[str, float]:
    """CPU-seconds of this process in a second in which it has nothing to do."""
    cpu = time.process_time()
    await asyncio.sleep(seconds)
    return {"share": (time.process_time() - cpu) / seconds}


async def obey(hosted: Hosted) -> None:
    """Do what standard input says, to its end; each answer has the loop's lag meanwhile."""
    orders = asyncio.StreamReader()  # a thread would wait for the input to end
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    late: list[float] = []
    watching = asyncio.create_task(lags(late))
    acts: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {"idle": idle, "record": record}
    acts["play"] = partial(play, hosted)
    print(f"READY {os.getpid()}", flush=True)
    while order := (await orders.readline()).decode().split():
        late.clear()
        numbers = [int(word) for word in order[1:]]
        answer = await acts[order[0]](*numbers)
        print(json.dumps(answer | {"lag": percentile(late, 0.99) if late else 0.0}), flush=True)
    watching.cancel()


async def drive(fields: dict[str, Any], url: str, nodes: int) -> None:
    """Serve the environment until the orders end."""
    async with AsyncExitStack() as stack:
        if nodes:
            variables = cluster_variables()
            os.environ |= variables | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(PLUGINS)])}
            address = await stack.enter_async_context(cluster_nodes(nodes, 1, variables))
            fields["cluster"] |= {"type": "ray", "address": address}
        env: Any = load_environment(resolve_env_config(fields))
        await stack.enter_async_context(env.serving())
        await obey(Hosted(env, url))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--nodes", type=int, default=0)
    options = parser.parse_args()
    adopt_orphans()
    logging.disable(logging.CRITICAL)
    fields = json.loads(options.config.read_text())
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(until_ended(drive(fields, options.url, options.nodes)))


if __name__ == "__main__":
    main()
