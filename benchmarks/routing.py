"""What routing by role costs: our interception server ÷ verifiers' own, same calls, one run.

Latency: streamed calls with a request of OpenCode's size go, in shuffled order, straight to an instant model, through
verifiers' server and through ours as `main` and as `sub`; each of the three, the model and this client are a process. A
call's added latency is its time minus the median time straight to the model. First one rollout at a time, then 64 at
once, on one server after the other in an order that changes from block to block: were they served at the same time, the
server that has more to do would be measured while the others are done already.

There the median of a call tells less of its cost than of the order in which a server serves them (verifiers' has many
short ones and some very long ones), so the time until all of them are over is compared, too.

Parallelism: 1,000 one-shot sub calls of one rollout, all sent at once, at parallelism 50 with a slow model: the time
over the ideal one (calls * delay / 50), and the growth of the server's process over that of verifiers' own server for
the same calls (all at once there, it has no queue): what stays is the record of the calls.

Run: uv run python benchmarks/routing.py [--json]
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import random
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import aiohttp

from benchmarks._child import cpu_seconds, process
from benchmarks._contenders import model_server
from benchmarks._measure import machine, percentile, report

GOALS = {
    "main_p50_1": 1.05,
    "main_p99_1": 1.05,
    "main_p50_64": 1.05,
    "main_p99_64": 1.05,
    "sub_p50_1": 1.05,
    "sub_p99_1": 1.05,
    "sub_p50_64": 1.05,
    "sub_p99_64": 1.05,
    "main_all_64": 1.05,
    "sub_all_64": 1.05,
    "main_cpu": 1.05,
    "sub_cpu": 1.05,
    "parallel_time": 1.20,
    "parallel_memory": 1.05,
}
ANSWER = [{"text": "done"}]
SERIAL_CALLS = 500
BLOCKS = 13
AT_ONCE = 64
CALLS_PER_BLOCK = 4
SUB_CALLS, PARALLEL, DELAY = 1000, 50, 1.0
KINDS = ("verifiers", "main", "sub")
OPENCODE_HEADERS = {"User-Agent": "opencode/1.18.33", "x-session-affinity": "ses_1", "X-Session-Id": "ses_1"}
SYSTEM = "You are a coding agent. " * 500
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{n}", "description": "x" * 1500, "parameters": {"type": "object"}}}
    for n in range(11)
]


@dataclass(frozen=True)
class Door:
    """One rollout's way in."""

    kind: str
    url: str
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        role = {} if self.kind == "verifiers" else {"X-RLM-Role": "sub" if self.kind == "sub" else "main"}
        return {"Authorization": f"Bearer {self.secret}", **OPENCODE_HEADERS, **role}


async def call(http: aiohttp.ClientSession, door: Door, number: int, *, one_shot: bool = False) -> float:
    """Seconds of one streamed call, with OpenCode's system prompt and tools unless it is a one-shot call."""
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": f"call {number}"}], "stream": True}
    if not one_shot:
        body["messages"].insert(0, {"role": "system", "content": SYSTEM})
        body["tools"] = TOOLS
    body["stream_options"] = {"include_usage": True}
    started = time.perf_counter()
    async with http.post(f"{door.url}/chat/completions", json=body, headers=door.headers) as response:
        text = await response.text()
    seconds = time.perf_counter() - started
    if response.status != 200 or "[DONE]" not in text:
        raise SystemExit(f"a call through {door.kind} failed ({response.status}): {text[:500]}")
    return seconds


async def serial(http: aiohttp.ClientSession, doors: Sequence[Door]) -> dict[str, list[float]]:
    """One call at a time, the doors in an order that is shuffled each time: what went before costs a twentieth."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(-20, SERIAL_CALLS):
        for door in random.Random(number).sample(doors, len(doors)):
            taken = await call(http, door, number)
            if number >= 0:
                seconds[door.kind].append(taken)
    return seconds


async def crowded(
    http: aiohttp.ClientSession, doors: Mapping[str, Sequence[Door]], pids: Mapping[str, int]
) -> tuple[list[dict[str, list[float]]], dict[str, list[float]], dict[str, float]]:
    """64 rollouts at once on one server after the other, each with a few calls in a row.

    Returns the seconds of the calls by block and kind, those of all of a block by kind, and the CPU-seconds of each
    kind's server.
    """
    blocks: list[dict[str, list[float]]] = []
    whole: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, float] = defaultdict(float)
    for block in range(BLOCKS):
        here = slice(block * AT_ONCE, (block + 1) * AT_ONCE)
        seconds: dict[str, list[float]] = {}
        for kind in (*KINDS[block % len(KINDS) :], *KINDS[: block % len(KINDS)], "direct"):
            before, started = cpu_seconds(pids[kind]), time.perf_counter()
            seconds[kind] = await _rollouts(http, doors[kind][here])
            if block:  # the first one opens the connections
                whole[kind].append(time.perf_counter() - started)
                cpu[kind] += cpu_seconds(pids[kind]) - before
        blocks.append(seconds)
    return blocks[1:], whole, cpu


async def _rollouts(http: aiohttp.ClientSession, doors: Sequence[Door]) -> list[float]:
    return [second for taken in await asyncio.gather(*(_rollout(http, door) for door in doors)) for second in taken]


async def _rollout(http: aiohttp.ClientSession, door: Door) -> list[float]:
    return [await call(http, door, number) for number in range(CALLS_PER_BLOCK)]


async def parallel(http: aiohttp.ClientSession, door: Door, pid: int) -> tuple[float, float]:
    """Seconds of all the calls, and MB by which the servers' process grew."""
    await call(http, door, 0, one_shot=True)
    before, started = _resident(pid), time.perf_counter()
    await asyncio.gather(*(call(http, door, number, one_shot=True) for number in range(SUB_CALLS)))
    return time.perf_counter() - started, _resident(pid) - before


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def added(blocks: Sequence[dict[str, list[float]]], label: int) -> tuple[dict[str, float], dict[str, str]]:
    """Ratios of added latency, the median over blocks, and what was measured in milliseconds."""
    ratios, shown = {}, {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        times: dict[str, list[float]] = defaultdict(list)
        for block in blocks:
            direct = statistics.median(block["direct"])
            for kind in KINDS:
                times[kind].append(percentile(block[kind], share) - direct)
        for kind in ("main", "sub"):
            pairs = zip(times[kind], times["verifiers"], strict=True)
            ratios[f"{kind}_{name}_{label}"] = statistics.median(ours / theirs for ours, theirs in pairs)
        medians = ", ".join(f"{kind} {1e3 * statistics.median(times[kind]):.2f}" for kind in KINDS)
        shown[f"added {name} at {label} (ms)"] = medians
    return ratios, shown


def _less(seconds: Sequence[float], direct: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(seconds, direct, strict=True)]


@dataclass(frozen=True)
class Served:
    """A server in a process of its own."""

    pid: int
    doors: list[Door]


@asynccontextmanager
async def server(kind: str, upstream: str) -> AsyncIterator[Served]:
    """verifiers' server, or ours for calls of one role."""
    async with process(__file__, "--serve", upstream, "--kind", kind) as child:
        assert child.stdout is not None
        while not (found := re.match(rb"DOORS (.*)", await child.stdout.readline())):
            if child.returncode is not None:
                raise SystemExit("the server did not start")
        yield Served(child.pid, [Door(kind, url, secret) for url, secret in json.loads(found[1])])


async def serve(upstream: str, kind: str) -> None:
    """The child: registers rollouts on a server, prints their doors, waits for its end."""
    import verifiers.v1 as vf
    from verifiers.v1.agent import make_agent
    from verifiers.v1.harnesses.null import NullHarnessConfig
    from verifiers.v1.interception import InterceptionServer
    from verifiers.v1.session import RolloutSession
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    if kind != "verifiers":  # whose own server runs as it is released, without what we mend on import
        from opencode_env.cli_agent.interception import SubRollout, SubSettings
        from opencode_env.cli_agent.interception_servers import role_server
        from opencode_env.cli_agent.rollout import rollout_of

    logging.disable(logging.CRITICAL)
    agent = make_agent(
        vf.AgentConfig(
            harness=NullHarnessConfig(id="null"),
            runtime=vf.SubprocessConfig(),
            model="m",
            client=vf.EvalClientConfig(base_url=upstream, api_key_var="NO_SUCH_KEY"),
        )
    )
    doors: list[tuple[str, str]] = []
    async with InterceptionServer() if kind == "verifiers" else role_server() as serving:
        for number in range(1 + BLOCKS * AT_ONCE):
            task: TraceTask[Any] = TraceTask(type="Task", data=vf.TaskData(idx=number, prompt="x"))
            main: Trace[Any, Any, Any] = Trace(task=task, agent=AgentInfo(config=agent.config))
            if kind != "verifiers":
                rollout_of(main).sub = SubRollout(main, agent, SubSettings(max_parallel=PARALLEL))
            secret, _ = serving.register(RolloutSession(ctx=agent.ctx, trace=main))
            doors.append((f"{serving.base_url}/v1", secret))
        gc.freeze()  # hundreds of rollouts are registered at once here: the collector shall not walk them in every call
        print(f"DOORS {json.dumps(doors)}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def measure() -> tuple[dict[str, float], dict[str, str]]:
    """All ratios, and what they are made of."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as http:
        async with model_server(ANSWER) as upstream, AsyncExitStack() as stack:
            direct = Door("direct", upstream, "none")
            served = {kind: await stack.enter_async_context(server(kind, upstream)) for kind in KINDS}
            first = [direct, *(one.doors[0] for one in served.values())]
            one, one_shown = added([await serial(http, first)], 1)
            crowd = {kind: one.doors[1:] for kind, one in served.items()} | {"direct": [direct] * (BLOCKS * AT_ONCE)}
            pids = {kind: one.pid for kind, one in served.items()} | {"direct": os.getpid()}
            blocks, whole, cpu = await crowded(http, crowd, pids)
            many, many_shown = added(blocks, AT_ONCE)
            calls = len(blocks) * AT_ONCE * CALLS_PER_BLOCK
            ratios = {f"{kind}_cpu": cpu[kind] / cpu["verifiers"] for kind in ("main", "sub")}
            added_whole = {kind: _less(whole[kind], whole["direct"]) for kind in KINDS}
            for kind in ("main", "sub"):
                pairs = zip(added_whole[kind], added_whole["verifiers"], strict=True)
                ratios[f"{kind}_all_{AT_ONCE}"] = statistics.median(ours / theirs for ours, theirs in pairs)
            used = ", ".join(f"{kind} {1e3 * cpu[kind] / calls:.2f}" for kind in KINDS)
        grown: dict[str, float] = {}
        for kind in ("verifiers", "sub"):
            async with model_server(ANSWER, DELAY) as upstream, server(kind, upstream) as alone:
                seconds, grown[kind] = await parallel(http, alone.doors[0], alone.pid)
    over = seconds / (SUB_CALLS * DELAY / PARALLEL)
    ratios |= {**one, **many, "parallel_time": over, "parallel_memory": grown["sub"] / grown["verifiers"]}
    return ratios, {**one_shown, **many_shown, "server CPU per call (ms)": used, "growth (MB)": str(grown)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.kind))
        return
    ratios, shown = asyncio.run(measure())
    detail = {**shown, "parallel": f"{SUB_CALLS} calls at {PARALLEL}, model delay {DELAY} s", **machine()}
    report("routing", ratios, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
