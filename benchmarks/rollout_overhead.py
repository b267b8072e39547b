"""What a rollout costs beyond the agent itself: our environment ÷ the bare binary, same prompts, one run.

Contenders, each in a process of its own, some runs of one 3-turn prompt, two at a time, instant scripted model:

  bare          `opencode run` by hand (xargs -P2) with the settings that the harness uses
  fresh         `opencode run` by hand as it comes: a fresh home and a provider, no other setting
  confined      whole rollouts through OpenCodeEnv in confined local sandboxes, creation to removal
  bare-podman   by hand: podman run, exec of the same command, rm; OpenCode in the image
  vf-podman     the bare binary in the podman runtime that verifiers makes (0.4.0: its own, later: ours): start,
                unpack, run, stop; same image
  podman        whole rollouts through OpenCodeEnv in podman, same image

The podman contenders make half as many runs.

CPU is user + system time of everything a contender started. Interpreter start, imports, one warm-up run and the model
server are outside. Run: uv run python benchmarks/rollout_overhead.py [--json] [--rollouts 16] [--only confined …]
"""

import argparse
import asyncio
import logging
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import verifiers.v1 as vf
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from rollout_sandbox.podman import PodmanConfig

from benchmarks._containers import containers
from benchmarks._contenders import cost_of, model_server, print_cost
from benchmarks._hosted import by_hand, by_hand_podman, by_runtime, hosted_env
from benchmarks._measure import Cost, adopt_orphans, machine, measured, report
from tests.support.podman import derived_image

GOALS = {
    "confined_cpu": 1.05,
    "confined_wall": 1.15,
    "confined_cpu_vs_fresh": 0.70,
    "podman_cpu": 1.10,
    "podman_wall": 1.30,
}
STEPS: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "write", "arguments": {"filePath": "/tmp/hello.txt", "content": "hello\n"}}]},
    {"tool_calls": [{"name": "read", "arguments": {"filePath": "/tmp/hello.txt"}}]},
    {"text": "done"},
]


async def through_env(count: int, base_url: str, runtime: vf.RuntimeConfig, cost: Cost) -> None:
    """`count` rollouts through OpenCodeEnv, two at a time, after one that is not counted."""
    async with hosted_env(base_url, runtime, count + 1) as hosted:
        await hosted.run(hosted.slots[:1], 1)
        with measured(cost):
            episodes = await hosted.run(hosted.slots[1:], 2)
    if any(episode.traces[0].num_turns != len(STEPS) for episode in episodes):
        raise SystemExit("a rollout did not play the whole script")


async def startup(runs: int = 5) -> dict[str, float]:
    """Median seconds to the first model request: from the sandbox being up, and from the bare binary's start."""
    logging.disable(logging.CRITICAL)
    ours, bare = [], []
    async with ScriptedModel(ScriptPolicy.of(Reply(text="done"))) as model:
        async with hosted_env(model.base_url, vf.SubprocessConfig(), runs + 1) as hosted:
            for slot in hosted.slots:
                (episode,) = await hosted.run([slot], 1)
                trace = episode.traces[0]
                ours.append(trace.calls[0].time.start - trace.timing.boot.end)
        for _ in range(runs + 1):
            seen, started = len(model.requests), time.time()
            await asyncio.to_thread(by_hand, 1, model.base_url, tuned=True)
            bare.append(model.requests[seen].received - started)
    return {"ours": statistics.median(ours[1:]), "bare": statistics.median(bare[1:])}


def contender(name: str, count: int, base_url: str, image: str) -> Cost:
    """Run one contender in this process and measure it."""
    adopt_orphans()
    logging.disable(logging.CRITICAL)
    cost = Cost()
    if name in ("confined", "podman"):
        runtime = vf.SubprocessConfig() if name == "confined" else PodmanConfig(image=image)
        asyncio.run(through_env(count, base_url, runtime, cost))
        return cost
    by_name: dict[str, Callable[[int], None]] = {
        "bare": lambda n: by_hand(n, base_url, tuned=True),
        "fresh": lambda n: by_hand(n, base_url, tuned=False),
        "bare-podman": lambda n: by_hand_podman(n, base_url, image),
        "vf-podman": lambda n: asyncio.run(by_runtime(n, base_url, PodmanConfig(image=image))),
    }
    work = by_name[name]
    work(1)
    with measured(cost):
        work(count)
    return cost


def make_image() -> str:
    """An image with OpenCode in it, made on the spot."""
    build = ensure_build(DEFAULT_VERSION, host_platform())
    recipe = f"COPY opencode rg complete.json /opencode/{build.directory.name}/\nCOPY opencode rg /opencode/"
    return derived_image("bench", recipe, {path.name: path for path in build.directory.iterdir()})


def runs_of(name: str, rollouts: int) -> int:
    """How many runs a contender makes."""
    return max(rollouts // 2, 1) if "podman" in name else rollouts


async def run_all(names: Sequence[str], count: int, rounds: int, image: str) -> dict[str, Cost]:
    """Every contender once in each of `rounds`; the costs of the rounds are added up."""
    total = {name: Cost() for name in names}
    async with model_server(STEPS) as base_url:
        for _ in range(rounds):
            for name in names:
                started = time.monotonic()
                arguments = ["--rollouts", str(runs_of(name, count)), "--base-url", base_url, "--image", image]
                cost = await cost_of(__file__, name, *arguments)
                total[name].wall += cost.wall
                total[name].cpu += cost.cpu
                seconds = time.monotonic() - started
                print(f"  {name}: {cost.wall:.1f} s, {cost.cpu:.1f} CPU-s ({seconds:.0f} s)", flush=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rollouts", type=int, default=16, help="runs per contender (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds through all contenders (default: %(default)s)")
    parser.add_argument("--only", nargs="*", help="contenders to run")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--base-url", help=argparse.SUPPRESS)
    parser.add_argument("--image", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        cost = contender(options.contender, options.rollouts, options.base_url, options.image)
        print_cost(cost)
        return
    names = options.only or ["bare", "fresh", "confined", "bare-podman", "vf-podman", "podman"]
    with containers(make_image) as image:
        names = [name for name in names if image or "podman" not in name]
        costs = asyncio.run(run_all(names, options.rollouts, options.rounds, image or ""))
    pairs = {
        "confined_cpu": ("confined", "bare", "cpu"),
        "confined_wall": ("confined", "bare", "wall"),
        "confined_cpu_vs_fresh": ("confined", "fresh", "cpu"),
        "podman_cpu": ("podman", "bare-podman", "cpu"),
        "podman_wall": ("podman", "bare-podman", "wall"),
        "podman_cpu_vs_runtime": ("podman", "vf-podman", "cpu"),
        "podman_wall_vs_runtime": ("podman", "vf-podman", "wall"),
    }
    ratios = {
        key: getattr(costs[ours], what) / getattr(costs[base], what)
        for key, (ours, base, what) in pairs.items()
        if ours in costs and base in costs
    }
    first_request = asyncio.run(startup())
    ratios["startup"] = first_request["ours"] / first_request["bare"]
    runs = {name: runs_of(name, options.rollouts) * options.rounds for name in costs}
    detail = {
        **{
            name: f"{c.wall / runs[name]:.2f} s wall, {c.cpu / runs[name]:.2f} CPU-s per run"
            for name, c in costs.items()
        },
        "first model request": f"{first_request['ours']:.2f} s from sandbox up, bare {first_request['bare']:.2f} s",
        **machine(),
        "opencode": DEFAULT_VERSION,
    }
    report("rollout_overhead", ratios, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
