"""What OpenEnv's protocol costs: rollouts through our server ÷ the same rollouts as `vf-eval` runs them.

Contenders, each in a process of its own, some rollouts (a setup command, OpenCode with a 3-turn prompt, two verify
commands) in confined local sandboxes, two at a time, instant scripted model:

  vf-eval    `Env.run_slot` over a dataset of equal rows
  server     `run_rollout` of the server in this process, called over WebSockets; its callers' CPU is counted with it
  crowded    the server with all rollouts at once (each model call takes 1 s), while another process asks for `state`
             and the list of tools over two more connections, one after the other, every 20 ms

CPU is user + system time of everything a contender started. Interpreter start, imports, one warm-up rollout and the
model server are outside. `answer_ms` is the 99th percentile of what the crowded server's answers take.

Run: uv run --group openenv python benchmarks/openenv.py [--json] [--rollouts 16]
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_openenv.app import app
from opencode_openenv.settings import ServerConfig
from websockets.asyncio.client import ClientConnection, connect

from benchmarks._contenders import cost_of, model_server, print_cost
from benchmarks._hosted import PROMPT, hosted_rows
from benchmarks._measure import Cost, adopt_orphans, machine, measured, percentile, report
from benchmarks.rollout_overhead import STEPS
from tests.support.user_home import closed_port, is_closed

GOALS = {"cpu": 1.10, "answer_ms": 50.0}
SETUP = ["echo prepared > prepared"]
VERIFY = ["true", "test -d ."]
AT_ONCE = 2
MODEL_SECONDS = 1.0
LIST_TOOLS = json.dumps({"type": "step", "data": {"type": "list_tools"}})
STATE = json.dumps({"type": "state"})


async def through_vf_eval(count: int, base_url: str, cost: Cost) -> None:
    """`count` rollouts of a dataset's rows."""
    rows = [{"id": f"t{number}", "question": PROMPT, "setup": SETUP, "verify": VERIFY} for number in range(count + 1)]
    async with hosted_rows(base_url, rows, {}) as hosted:
        await hosted.run(hosted.slots[:1], 1)
        with measured(cost):
            episodes = await hosted.run(hosted.slots[1:], AT_ONCE)
    if any(episode.traces[0].reward != 1.0 for episode in episodes):
        raise SystemExit("a rollout did not score 1")


@asynccontextmanager
async def serving(places: int) -> AsyncIterator[str]:
    """Our server in this process; its WebSocket's URL."""
    port = closed_port()
    server = asyncio.ensure_future(app.serve(ServerConfig(port=port, max_concurrent=places)))
    while is_closed(port):
        if server.done():
            server.result()
        await asyncio.sleep(0.05)
    try:
        yield f"ws://127.0.0.1:{port}/ws"
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await server


async def call(connection: ClientConnection, base_url: str) -> None:
    """One rollout over a connection.

    Raises:
        SystemExit: it did not score 1.
    """
    arguments = {"base_url": base_url, "model": "m", "instruction": PROMPT, "setup": SETUP, "verify": VERIFY}
    action = {"type": "call_tool", "tool_name": "run_rollout", "arguments": arguments}
    await connection.send(json.dumps({"type": "step", "data": action}))
    answer = json.loads(await connection.recv())
    result = json.loads(answer["data"]["observation"]["result"]["content"][0]["text"])
    if result["reward"] != 1.0:
        raise SystemExit(f"a rollout did not score 1: {result['error']}")


async def through_server(count: int, base_url: str, cost: Cost) -> None:
    """`count` rollouts over as many connections as run at once."""

    async def caller(url: str, calls: int) -> None:
        async with connect(url, proxy=None) as connection:
            for _ in range(calls):
                await call(connection, base_url)

    async with serving(AT_ONCE) as url:
        await caller(url, 1)
        with measured(cost):
            await asyncio.gather(*(caller(url, count // AT_ONCE) for _ in range(AT_ONCE)))


async def crowded(count: int, base_url: str) -> Sequence[float]:
    """Milliseconds of the server's answers while `count` rollouts run at once."""
    async with serving(count) as url:

        async def caller() -> None:
            async with connect(url, proxy=None) as connection:
                await call(connection, base_url)

        argv = [sys.executable, __file__, "--probe", url]
        pipe = asyncio.subprocess.PIPE
        prober = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        assert prober.stdout is not None
        assert prober.stdin is not None
        await prober.stdout.readline()
        await asyncio.gather(*(caller() for _ in range(count)))
        prober.stdin.close()
        return list(map(float, json.loads(await prober.stdout.readline())))


async def probe(url: str) -> None:
    """Ask until standard input ends, then print what each answer took."""
    took: list[float] = []
    over = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    async with connect(url, proxy=None) as one, connect(url, proxy=None) as other:
        for connection, asked in ((one, STATE), (other, LIST_TOOLS)):
            await connection.send(asked)
            await connection.recv()
        print("ready", flush=True)
        while not over.done():
            for connection, asked in ((one, STATE), (other, LIST_TOOLS)):
                started = time.perf_counter()
                await connection.send(asked)
                await connection.recv()
                took.append((time.perf_counter() - started) * 1000)
                await asyncio.sleep(0.02)
    print(json.dumps(took), flush=True)


def contender(name: str, count: int, base_url: str) -> None:
    """Run one contender in this process and print what it cost."""
    adopt_orphans()
    logging.disable(logging.CRITICAL)
    cost = Cost()
    if name == "crowded":
        print("TOOK " + json.dumps(asyncio.run(crowded(count, base_url))))
    else:
        asyncio.run((through_vf_eval if name == "vf-eval" else through_server)(count, base_url, cost))
    print_cost(cost)


async def answers_of(count: int, base_url: str) -> list[float]:
    """Run the contender `crowded` in a process of its own."""
    argv = [sys.executable, __file__, "--contender", "crowded", "--rollouts", str(count), "--base-url", base_url]
    child = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    if child.returncode != 0:
        raise SystemExit("the contender crowded failed")
    (line,) = [line for line in out.decode().splitlines() if line.startswith("TOOK ")]
    return list(map(float, json.loads(line.removeprefix("TOOK "))))


async def measure(count: int) -> tuple[dict[str, float], dict[str, object]]:
    """Ratios and details."""
    costs: dict[str, Cost] = {}
    async with model_server(STEPS) as base_url:
        for name in ("vf-eval", "server"):
            costs[name] = await cost_of(__file__, name, "--rollouts", str(count), "--base-url", base_url)
    async with model_server(STEPS, MODEL_SECONDS) as base_url:
        took = await answers_of(count, base_url)
    details: dict[str, Any] = {name: f"{cost.wall:.1f} s, {cost.cpu:.1f} CPU-s" for name, cost in costs.items()}
    details["answers"] = f"{len(took)}, median {percentile(took, 0.5):.1f} ms, longest {max(took):.0f} ms"
    ratios = {"cpu": costs["server"].cpu / costs["vf-eval"].cpu, "answer_ms": percentile(took, 0.99)}
    return ratios, {"rollouts": count, **details, **machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rollouts", type=int, default=16, help="rollouts per contender (default: %(default)s)")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    parser.add_argument("--base-url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        asyncio.run(probe(options.probe))
    elif options.contender:
        contender(options.contender, options.rollouts, options.base_url)
    else:
        ratios, details = asyncio.run(measure(options.rollouts))
        report("openenv", ratios, GOALS, details, as_json=options.json)


if __name__ == "__main__":
    main()
