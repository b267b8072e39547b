"""What our interception adds to a model call ÷ what verifiers' own server adds, on OpenCode's own traffic, in one run.

OpenCode is recorded once: a rollout of 200 turns whose calls are spelled as models spell them and whose results make
the last request 2 MB. Every request of it is then sent three times: straight to the model that answered it, through
verifiers' server and through ours (bounds, filters, masked keys, repair of the history, whole streams); each of the
three is a process of its own. A call's added time is its time minus the median time of the same request straight to the
model. A rollout's share of the serving thread is not bounded here: replayed without a model's own time, one rollout
takes more than its share, and would wait. Then the beginning of the recording is played by 64 rollouts at once on both
servers at the same time, for the CPU-seconds that the two processes take.

The cost of a call grows with its history on both sides: verifiers reads, hashes and sends all of it. `growth` is by how
much ours grows from turns 5 to 15 to turns 90 to 110 ÷ by how much verifiers' own does; each turn brings equal bytes.

Run: uv run python benchmarks/interception.py [--json] [--turns N] [--rounds N] [--megabytes N]
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import aiohttp
import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarness, OpenCodeHarnessConfig
from opencode_env.cli_agent.interception import call_limits
from opencode_env.cli_agent.interception_servers import role_server
from opencode_env.scripted_model import Reply, Script, ScriptedModel, ScriptPolicy, ToolCall
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined
from verifiers.v1.agent import make_agent
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import AgentInfo, Trace, TraceTask

from benchmarks._child import cpu_seconds, process
from benchmarks._contenders import model_server
from benchmarks._measure import machine, percentile, report

GOALS = {"added_p50": 1.05, "added_p99": 1.10, "growth": 1.3, "cpu": 1.05, "cpu_64": 1.05}
SERVERS = ("verifiers", "ours")
KINDS = ("direct", *SERVERS)
AT_ONCE, CROWD_TURNS = 64, 24
EARLY, LATE = slice(5, 15), slice(90, 110)
HARNESS = OpenCodeHarnessConfig(id="opencode-env")
KEY = "BENCHMARK_API_KEY"
PASSED_ON = ("user-agent", "accept", "content-type", "x-session-affinity", "x-agent-mark")
"""Headers of OpenCode that the recording keeps; the others are of the connection, or of verifiers' server."""


def script(turns: int, size: int) -> Script:
    """A model that calls a tool at every turn but the last, each with `size` bytes of output that looks like code."""
    steps = []
    for number in range(turns - 1):
        line = f"    if entry.kind == wanted[{number}] and len(entry.text) > 0:  # as before, or later"
        command = f"yes '{line}' | head -c {size}"
        spelled = json.dumps({"command": command, "description": f"Turn {number}", "timeout": 60000})
        call = ToolCall(name="bash", arguments=spelled, id=f"call_{number}")  # the same for whoever plays it again
        steps.append(Reply(tool_calls=(call,)))
    return Script(steps=(*steps, Reply(text="Done.")))


def seat(base_url: str) -> vf.AgentConfig:
    """OpenCode against an endpoint with a key."""
    client = vf.EvalClientConfig(base_url=base_url, api_key_var=KEY)
    return vf.AgentConfig(harness=HARNESS, runtime=vf.SubprocessConfig(), model="m", client=client)


@dataclass(frozen=True)
class Recorded:
    """One request of OpenCode."""

    body: bytes
    headers: Mapping[str, str]


async def record(played: Script) -> list[Recorded]:
    """What OpenCode sends."""
    async with ScriptedModel(ScriptPolicy(played)) as model, InterceptionServer() as serving:
        agent = make_agent(seat(model.base_url), interception=serving)
        assert isinstance(agent.harness, OpenCodeHarness)
        task: vf.Task[Any, Any, Any] = vf.Task(vf.TaskData(idx=0, prompt="Do what the script says."))
        async with provision_confined(LocalSandboxConfig(), await agent.harness.local_binds()) as box:
            trace = await agent.run(task, runtime=box)
        if not trace.ok:
            raise SystemExit(f"the rollout to record failed: {trace.errors}")
        return [_recorded(turn, one.body, one.headers) for turn, one in enumerate(model.requests)]


def _recorded(turn: int, body: Any, headers: Mapping[str, str]) -> Recorded:
    kept = {name: headers[name] for name in PASSED_ON if name in headers}
    # verifiers' server puts the trace in the place of the session, and our plugin gives each step a key.
    kept |= {"x-session-id": kept["x-session-affinity"], "Idempotency-Key": f"step-{turn}"}
    return Recorded(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), kept)


@dataclass(frozen=True)
class Served:
    """A server in a process of its own, with a secret for each rollout."""

    child: asyncio.subprocess.Process
    url: str
    secrets: Sequence[str]

    @property
    def cpu(self) -> float:
        """CPU-seconds that it has used."""
        return cpu_seconds(self.child.pid)

    async def check(self) -> None:
        """Make sure that it recognised what it sampled: every conversation that was played is one branch.

        Raises:
            SystemExit: one is not.
        """
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write_eof()
        if (said := await self.child.stdout.readline()) != b"BRANCHES [0, 1]\n":
            raise SystemExit(f"a replayed conversation forked: {said.decode()}")


@asynccontextmanager
async def server(kind: str, upstream: str, rollouts: int) -> AsyncIterator[Served]:
    """verifiers' server or ours."""
    async with process(__file__, "--serve", upstream, "--kind", kind, "--rollouts", str(rollouts)) as child:
        assert child.stdout is not None
        while not (found := re.match(rb"SERVED (.*)", await child.stdout.readline())):
            if child.returncode is not None:
                raise SystemExit("the server did not start")
        url, secrets = json.loads(found[1])
        yield Served(child, url, secrets)


async def serve(upstream: str, kind: str, rollouts: int) -> None:
    """The child: registers rollouts, prints the way in, waits for the end of its input, prints what it recorded."""
    logging.disable(logging.CRITICAL)
    os.environ[KEY] = "sk-benchmark-0123456789abcdef"
    agent = make_agent(seat(upstream))
    secrets: list[str] = []
    traces: list[Trace[Any, Any, Any]] = []
    call_limits.SHARE = 1e9
    async with InterceptionServer() if kind == "verifiers" else role_server() as serving:
        for number in range(rollouts):
            task: TraceTask[Any] = TraceTask(type="Task", data=vf.TaskData(idx=number, prompt="x"))
            traces.append(Trace(task=task, agent=AgentInfo(config=agent.config)))
            secrets.append(serving.register(RolloutSession(ctx=agent.ctx, trace=traces[-1]))[0])
        gc.freeze()
        print(f"SERVED {json.dumps([f'{serving.base_url}/v1', secrets])}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(f"BRANCHES {sorted({0} | {len(trace.branches) for trace in traces})}", flush=True)


async def call(http: aiohttp.ClientSession, url: str, secret: str, request: Recorded) -> float:
    """Seconds of one call."""
    headers = {**request.headers, "Authorization": f"Bearer {secret}"}
    started = time.perf_counter()
    async with http.post(f"{url}/chat/completions", data=request.body, headers=headers) as response:
        text = await response.text()
    seconds = time.perf_counter() - started
    if response.status != 200 or '"finish_reason"' not in text:
        raise SystemExit(f"a call to {url} failed ({response.status}): {text[:500]}")
    return seconds


Times = list[dict[str, float]]
"""Seconds by kind, turn by turn."""


async def replay(
    http: aiohttp.ClientSession, requests: Sequence[Recorded], upstream: str, served: Mapping[str, Served], rollout: int
) -> Times:
    """Every request through every way in, one after the other."""
    ways = {"direct": (upstream, "none")} | {kind: (one.url, one.secrets[rollout]) for kind, one in served.items()}
    times: Times = []
    for turn, request in enumerate(requests):
        order = KINDS[turn % 3 :] + KINDS[: turn % 3]
        times.append({kind: await call(http, *ways[kind], request) for kind in order})
    return times


async def crowd(
    http: aiohttp.ClientSession, requests: Sequence[Recorded], served: Mapping[str, Served], first: int
) -> None:
    """The requests by many rollouts at once, on both servers at the same time."""

    async def play(one: Served, rollout: int) -> None:
        for request in requests:
            await call(http, one.url, one.secrets[rollout], request)

    await asyncio.gather(*(play(one, first + n) for n in range(AT_ONCE) for one in served.values()))


def added(rounds: Sequence[Times]) -> dict[str, list[float]]:
    """What each server adds to each turn: the median over the rounds."""
    turns = range(len(rounds[0]))
    straight = [statistics.median(times[turn]["direct"] for times in rounds) for turn in turns]
    return {
        kind: [statistics.median(times[turn][kind] for times in rounds) - straight[turn] for turn in turns]
        for kind in SERVERS
    }


def ratios_of(rounds: Sequence[Times]) -> tuple[dict[str, float], dict[str, str]]:
    """The ratios of added times, and what they are made of."""
    seconds = added(rounds)
    ratios, shown = {}, {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        found = {kind: percentile(values, share) for kind, values in seconds.items()}
        ratios[f"added_{name}"] = found["ours"] / found["verifiers"]
        shown[f"added {name} (ms)"] = ", ".join(f"{kind} {1e3 * value:.2f}" for kind, value in found.items())
    if len(rounds[0]) >= LATE.stop:
        grown = {kind: statistics.mean(one[LATE]) / statistics.mean(one[EARLY]) for kind, one in seconds.items()}
        ratios["growth"] = grown["ours"] / grown["verifiers"]
        shown["turns 90 to 110 ÷ turns 5 to 15"] = ", ".join(f"{kind} {value:.2f}" for kind, value in grown.items())
    return ratios, shown


async def measure(turns: int, rounds: int, megabytes: float) -> tuple[dict[str, float], dict[str, str]]:
    """Record, replay, compare."""
    played = script(turns, int(megabytes * 1e6 / turns))
    requests = await record(played)
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=240)
    async with (
        model_server(played.model_dump(mode="json", exclude_defaults=True)) as upstream,
        server("verifiers", upstream, rounds + AT_ONCE) as verifiers,
        server("ours", upstream, rounds + AT_ONCE) as ours,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
    ):
        served = {"verifiers": verifiers, "ours": ours}
        started = {kind: one.cpu for kind, one in served.items()}
        taken = [await replay(http, requests, upstream, served, number) for number in range(rounds)]
        between = {kind: one.cpu for kind, one in served.items()}
        await crowd(http, requests[:CROWD_TURNS], served, rounds)
        ended = {kind: one.cpu for kind, one in served.items()}
        for one in served.values():
            await one.check()
    ratios, shown = ratios_of(taken)
    calls = {"cpu": rounds * len(requests), "cpu_64": AT_ONCE * len(requests[:CROWD_TURNS])}
    for name, before, after in (("cpu", started, between), ("cpu_64", between, ended)):
        used = {kind: (after[kind] - before[kind]) / calls[name] for kind in SERVERS}
        ratios[name] = used["ours"] / used["verifiers"]
        shown[f"{name}, each call (ms)"] = ", ".join(f"{kind} {1e3 * value:.2f}" for kind, value in used.items())
    last = len(requests[-1].body) / 1e6
    return ratios, {**shown, "requests": f"{len(requests)}, the last of {last:.2f} MB, {rounds} times"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--turns", type=int, default=200, help="of the rollout (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often it is replayed (default: %(default)s)")
    parser.add_argument("--megabytes", type=float, default=2.0, help="of the last request (default: %(default)s)")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--rollouts", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.kind, options.rollouts))
        return
    ratios, shown = asyncio.run(measure(options.turns, options.rounds, options.megabytes))
    goals = {name: goal for name, goal in GOALS.items() if name in ratios}
    report("interception", ratios, goals, {**shown, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
