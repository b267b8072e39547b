"""Rollouts of simulated agents in one environment worker, in Prime Sandboxes of the tests' server or in local ones."""

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opencode_env.conformance.user_home import closed_port
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.episode import WireEpisode

from benchmarks._child import ask
from benchmarks._prime_api import BOOT_SECONDS, CREATE_SECONDS, DELETE_SECONDS, REQUEST_SECONDS
from benchmarks._simulated_agents import SHORT_TURNS, START_SECONDS
from benchmarks._watched_worker import WatchedWorker, program, watched_worker

IDLE_SECONDS = 4.0
SETTLE_SECONDS = 30.0
STREAMS = ("Start", "Connect", "upload")
"""Requests of the gateway that a rollout waits for, one after the other."""


@dataclass(frozen=True)
class Load:
    """What is played, and how."""

    upstream: str
    agents: Path
    directory: Path
    turns: int
    seconds: float


@dataclass
class Seen:
    """What was seen of the rollouts of one kind."""

    walls: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    seen_after: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0
    peak: float = 0.0
    size_before: float = 0.0
    size_after: float = 0.0
    left: dict[str, int] = field(default_factory=dict)
    living: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    waiting_seconds: float = 0.0
    waiting_requests: float = 0.0

    @property
    def cpu_of_one(self) -> float:
        """CPU-seconds of the worker for one rollout."""
        return self.cpu / len(self.walls)


class Server:
    """The server that speaks Prime's API.

    Args:
        child: its process.
        environment: variables that lead the SDK there.
    """

    def __init__(self, child: asyncio.subprocess.Process, environment: Mapping[str, str]) -> None:
        self._child = child
        self.environment = environment

    async def order(self, what: str) -> dict[str, Any]:
        """What it has counted since `begin`."""
        return await ask(self._child, what)


@asynccontextmanager
async def server(*arguments: str) -> AsyncIterator[Server]:
    """The server with these options."""
    async with program("_prime_api.py", *arguments) as (child, said):
        yield Server(child, json.loads(said))


def interception() -> dict[str, Any]:
    """An URL of our own, at which sandboxes of the server reach this machine."""
    port = closed_port()
    return {"type": "server", "tunnel": {"type": "custom", "url": f"http://127.0.0.1:{port}", "port": port}}


def fields(load: Load, runtime: str) -> dict[str, Any]:
    """The environment's configuration."""
    agent = {"harness": {"id": "program-agent", "directory": str(load.directory)}, "runtime": {"type": runtime}}
    return {"id": "program-agent", "taskset": {"id": "simulated-agent"}, "agent": agent}


async def play(worker: WatchedWorker, load: Load, rollouts: int, at_once: int, name: str, seen: Seen) -> None:
    """Rollouts, so many at a time."""
    endpoint = EvalClientConfig(base_url=load.upstream, api_key_var="NO_SUCH_KEY")
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with gate:
            started = time.monotonic()
            data = {"idx": number, "prompt": "Do what the script says."}
            episode = await worker.client.run(endpoint, name, SamplingConfig(), data)
            seen.walls.append(time.monotonic() - started)
        turns = SHORT_TURNS if name == "short" else load.turns
        seen.delays.append(random.Random(number).uniform(0, START_SECONDS) + turns * load.seconds)
        seen.outcomes[outcome(episode, turns)] += 1
        after = [trace.metrics.get("seen_after") for trace in episode.traces]
        seen.seen_after += [seconds for seconds in after if seconds is not None]

    started = time.monotonic()
    await asyncio.gather(*(one(number) for number in range(rollouts)))
    seen.seconds = time.monotonic() - started
    print(f"  {rollouts} {name} rollouts: {seen.seconds:.0f} s", flush=True)


def outcome(episode: WireEpisode, turns: int) -> str:
    """What became of a rollout."""
    if len(episode.traces) != 1 or not episode.ok:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        return f"error: {errors[-1].type if errors else 'no trace'}"
    (trace,) = episode.traces
    scored = [reward.value for reward in trace.rewards.values() if reward is not None]
    if (trace.num_turns, trace.num_branches) != (turns, 1):
        return f"{trace.num_turns} turns, {trace.num_branches} branches"
    return "scored" if scored == [1.0] else "not scored"


async def watched(worker: WatchedWorker, load: Load, rollouts: int, at_once: int) -> Seen:
    """Play them and watch the worker; what it costs to watch one with nothing to do is taken off."""
    await worker.begin()
    await asyncio.sleep(IDLE_SECONDS)
    idle = await worker.watched()
    seen = Seen(size_before=idle["resident"])
    await worker.begin()
    await play(worker, load, rollouts, at_once, "steady", seen)
    busy = await worker.watched()
    seen.cpu = busy["cpu"] - idle["cpu"] / IDLE_SECONDS * seen.seconds
    seen.peak = busy["peak"]
    return seen


async def watch_local(load: Load, rollouts: int, scratch: Path) -> Seen:
    """Rollouts in confined local sandboxes, all at once."""
    async with watched_worker(fields(load, "subprocess"), scratch) as worker:
        await play(worker, load, rollouts, rollouts, "short", Seen())
        return await watched(worker, load, rollouts, rollouts)


async def watch_remote(load: Load, rollouts: int, at_once: int, scratch: Path) -> Seen:
    """Rollouts in the server's sandboxes."""
    (scratch / "home").mkdir(exist_ok=True)
    async with server("--agents", str(load.agents), "--at-once", str(at_once)) as api:
        env = {**os.environ, **api.environment, "HOME": str(scratch / "home")}
        config = {**fields(load, "prime"), "interception": interception()}
        async with watched_worker(config, scratch, env) as worker:
            await play(worker, load, at_once, at_once, "steady", Seen())
            before = await worker.held()
            await api.order("begin")
            seen = await watched(worker, load, rollouts, at_once)
            seen.left = await worker.more_than(before, SETTLE_SECONDS)
            seen.size_after = (await worker.watched())["resident"]
            add_counts(seen, await api.order("seen"))
    return seen


def add_counts(seen: Seen, counted: Mapping[str, Any]) -> None:
    """What the server has counted, and the delays that this makes for a rollout."""
    seen.requests, seen.living = counted["requests"], counted["living"]
    seen.waiting_seconds, seen.waiting_requests = counted["waiting_seconds"], counted["waiting_requests"]
    waited_for = sum(seen.requests.get(name, 0) for name in STREAMS) / len(seen.walls)
    of_server = CREATE_SECONDS + BOOT_SECONDS + DELETE_SECONDS + REQUEST_SECONDS * waited_for
    seen.delays = [delay + of_server for delay in seen.delays]
