"""What our interception adds to a model call ÷ what verifiers' own server adds, on OpenCode's own traffic, in one run.

OpenCode is recorded once: a rollout of 200 turns whose calls are spelled as models spell them and whose results make
the last request 2 MB. Every request of it is then sent, in turn, straight to the model that answered it, through
verifiers' server and through ours (bounds, repair of the history, whole streams); each of the three is a process of its
own. A call's added time is its time minus the median time of the same request straight to the model.

`growth` is what ours adds ÷ what verifiers' own adds at turns 90 to 110, over the same at turns 5 to 15: 1 when the
cost of our part grows no faster with the history than that of verifiers' own.

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
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import aiohttp
import verifiers.v1 as vf
from opencode_env.cli_agent.interception import RoleInterceptionServer
from opencode_env.cli_agent.sandbox import LocalSandboxConfig, provision_confined
from opencode_env.opencode import OpenCodeHarness, OpenCodeHarnessConfig
from opencode_env.scripted_model import Reply, Script, ScriptedModel, ScriptPolicy, ToolCall
from verifiers.v1.agent import make_agent
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import AgentInfo, Trace, TraceTask

from benchmarks._child import process
from benchmarks._measure import machine, report

GOALS = {"added_p50": 1.05, "added_p99": 1.10, "growth": 1.3, "cpu": 1.05}
KINDS = ("direct", "verifiers", "ours")
HARNESS = OpenCodeHarnessConfig(id="opencode-env")


def script(turns: int, size: int) -> Script:
    """A model that calls a tool at every turn but the last, each with `size` bytes of output."""
    steps = []
    for number in range(turns - 1):
        command = f"head -c {size * 3 // 4} /dev/zero | base64 -w 100 | sed s/A/{number % 10}/g"
        spelled = f'{{"command": "{command}", "description": "Turn {number}", "timeout": 60000}}'
        steps.append(Reply(tool_calls=(ToolCall(name="bash", arguments=spelled, id=f"call_{number}"),)))
    return Script(steps=(*steps, Reply(text="Done.")))


def seat(base_url: str) -> vf.AgentConfig:
    """OpenCode against an endpoint."""
    client = vf.EvalClientConfig(base_url=base_url, api_key_var="NO_SUCH_KEY")
    return vf.AgentConfig(harness=HARNESS, runtime=vf.SubprocessConfig(), model="m", client=client)


async def record(played: Script) -> list[dict[str, Any]]:
    """The bodies that OpenCode sends."""
    async with ScriptedModel(ScriptPolicy(played)) as model, InterceptionServer() as serving:
        agent = make_agent(seat(model.base_url), interception=serving)
        assert isinstance(agent.harness, OpenCodeHarness)
        task: vf.Task[Any, Any, Any] = vf.Task(vf.TaskData(idx=0, prompt="Do what the script says."))
        async with provision_confined(LocalSandboxConfig(), await agent.harness.local_binds()) as box:
            trace = await agent.run(task, runtime=box)
        if not trace.ok:
            raise SystemExit(f"the rollout to record failed: {trace.errors}")
        return [request.body for request in model.requests]


@asynccontextmanager
async def model(played: Script) -> AsyncIterator[str]:
    """The scripted model in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        path, port = Path(scratch) / "script.json", Path(scratch) / "port"
        path.write_text(played.model_dump_json(exclude_defaults=True))
        async with process("-m", "opencode_env.scripted_model", "--script", str(path), "--port-file", str(port)):
            while not port.exists() or not port.read_text().strip():
                await asyncio.sleep(0.05)
            yield f"http://127.0.0.1:{port.read_text().strip()}/v1"


@dataclass(frozen=True)
class Served:
    """A server in a process of its own, with one secret for each round."""

    pid: int
    url: str
    secrets: Sequence[str]


@asynccontextmanager
async def server(kind: str, upstream: str, rounds: int) -> AsyncIterator[Served]:
    """verifiers' server or ours."""
    async with process(__file__, "--serve", upstream, "--kind", kind, "--rounds", str(rounds)) as child:
        assert child.stdout is not None
        while not (found := re.match(rb"SERVED (.*)", await child.stdout.readline())):
            if child.returncode is not None:
                raise SystemExit("the server did not start")
        url, secrets = json.loads(found[1])
        yield Served(child.pid, url, secrets)


async def serve(upstream: str, kind: str, rounds: int) -> None:
    """The child: registers a rollout for each round, prints the way in, waits for its end."""
    logging.disable(logging.CRITICAL)
    agent = make_agent(seat(upstream))
    secrets: list[str] = []
    async with InterceptionServer() if kind == "verifiers" else RoleInterceptionServer() as serving:
        for number in range(rounds):
            task: TraceTask[Any] = TraceTask(type="Task", data=vf.TaskData(idx=number, prompt="x"))
            main: Trace[Any, Any, Any] = Trace(task=task, agent=AgentInfo(config=agent.config))
            secrets.append(serving.register(RolloutSession(ctx=agent.ctx, trace=main))[0])
        gc.freeze()
        print(f"SERVED {json.dumps([f'{serving.base_url}/v1', secrets])}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def call(http: aiohttp.ClientSession, url: str, secret: str, body: bytes) -> float:
    """Seconds of one call."""
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json", "x-session-id": "ses_1"}
    started = time.perf_counter()
    async with http.post(f"{url}/chat/completions", data=body, headers=headers) as response:
        text = await response.text()
    seconds = time.perf_counter() - started
    if response.status != 200 or "[DONE]" not in text:
        raise SystemExit(f"a call to {url} failed ({response.status}): {text[:500]}")
    return seconds


Times = list[dict[str, float]]
"""Seconds by kind, turn by turn."""


async def replay(bodies: Sequence[bytes], rounds: int, upstream: str) -> tuple[list[Times], dict[str, float]]:
    """Every request through every way in; returns the rounds, and CPU-seconds of each server."""
    timeout = aiohttp.ClientTimeout(total=120)
    async with (
        server("verifiers", upstream, rounds) as verifiers,
        server("ours", upstream, rounds) as ours,
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        taken: list[Times] = []
        before = {"verifiers": _cpu(verifiers.pid), "ours": _cpu(ours.pid)}
        for number in range(rounds):
            ways = {
                "direct": (upstream, "none"),
                "verifiers": (verifiers.url, verifiers.secrets[number]),
                "ours": (ours.url, ours.secrets[number]),
            }
            times: Times = []
            for turn, body in enumerate(bodies):
                order = KINDS[turn % 3 :] + KINDS[: turn % 3]
                times.append({kind: await call(http, *ways[kind], body) for kind in order})
            taken.append(times)
        return taken, {"verifiers": _cpu(verifiers.pid) - before["verifiers"], "ours": _cpu(ours.pid) - before["ours"]}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def added(rounds: Sequence[Times]) -> dict[str, list[float]]:
    """What each server adds to each turn: the median over the rounds."""
    turns = range(len(rounds[0]))
    straight = [statistics.median(times[turn]["direct"] for times in rounds) for turn in turns]
    return {
        kind: [statistics.median(times[turn][kind] for times in rounds) - straight[turn] for turn in turns]
        for kind in ("verifiers", "ours")
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def ratios_of(rounds: Sequence[Times], cpu: dict[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """All ratios, and what they are made of."""
    seconds = added(rounds)
    ratios, shown = {}, {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        found = {kind: percentile(values, share) for kind, values in seconds.items()}
        ratios[f"added_{name}"] = found["ours"] / found["verifiers"]
        shown[f"added {name} (ms)"] = ", ".join(f"{kind} {1e3 * value:.2f}" for kind, value in found.items())
    ratios["cpu"] = cpu["ours"] / cpu["verifiers"]
    shown["server CPU (s)"] = ", ".join(f"{kind} {value:.2f}" for kind, value in cpu.items())
    if len(seconds["ours"]) >= 110:
        parts = [slice(5, 15), slice(90, 110)]
        early, late = (sum(seconds["ours"][part]) / sum(seconds["verifiers"][part]) for part in parts)
        ratios["growth"] = late / early
    return ratios, shown


async def measure(turns: int, rounds: int, megabytes: float) -> tuple[dict[str, float], dict[str, str]]:
    """Record, replay, compare."""
    played = script(turns, int(megabytes * 1e6 / turns))
    bodies = [json.dumps(body).encode() for body in await record(played)]
    async with model(played) as upstream:
        taken, cpu = await replay(bodies, rounds, upstream)
    ratios, shown = ratios_of(taken, cpu)
    return ratios, {**shown, "requests": f"{len(bodies)}, the last of {len(bodies[-1]) / 1e6:.2f} MB, {rounds} times"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--turns", type=int, default=200, help="of the rollout (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often it is replayed (default: %(default)s)")
    parser.add_argument("--megabytes", type=float, default=2.0, help="of the last request (default: %(default)s)")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.kind, options.rounds))
        return
    ratios, shown = asyncio.run(measure(options.turns, options.rounds, options.megabytes))
    goals = {name: goal for name, goal in GOALS.items() if name in ratios}
    report("interception", ratios, goals, {**shown, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
