"""256 rollouts at once in one environment worker: ours ÷ verifiers' own, under the same load, one after the other.

OpenCode is recorded once: a rollout of 20 turns. Then 256 agents play it at once against verifiers' own environment
server (`EnvServer`, one process) with our environment in it, and with verifiers' own. The agents are simulated, in a
process of their own: each starts within 4 s and sends the recorded requests over a connection of its own to the
interception, and sends a failed call again, as OpenCode does. The model, a third process, answers after 2 s ± 1.
Everything else is real: environment, guard, interception, traces streamed to the client; there is no sandbox.

`steady`: nothing fails. `faulty`, for ours alone: one agent of ten is killed in the middle of a call, and one call of
twenty fails (503, or a cut stream). Lags are those of the worker's event loop, over all the time of a round, at which
its thread is busy all the time on most machines; memory is what its process grows in the steady round, for one rollout,
without the text of the rollout's own messages. `unaccounted` counts rollouts that are not what they should be: scored
with all turns in one branch, or, when killed, scored as they are from the first tool call on, and an error before.
`left` counts what the worker holds when all is over and did not hold after its first rollouts.

Run: uv run python benchmarks/scale.py [--json] [--rollouts 256] [--turns 20] [--seconds 2] [--spread 1]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import aiohttp
from opencode_env.scripted_model import Script, ScriptedModel, ScriptPolicy
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.episode import WireEpisode

from benchmarks._measure import machine, report
from benchmarks._simulated_agents import is_killed
from benchmarks._watched_worker import WatchedWorker, program, watched_worker
from benchmarks.interception import record, script

ENVIRONMENTS = {"verifiers": "single-agent", "ours": "simulated-agent"}
ROUNDS = {"verifiers": ("steady",), "ours": ("steady", "faulty")}
WARM_UP = 8
"""Rollouts before anything is measured."""
MEGABYTES = 0.04
"""Of all tool results of a rollout."""
ROUND_SECONDS = 240.0
"""The longest that a round may take before its rollouts count as hung."""
SETTLE_SECONDS = 30.0
GOALS = {
    "lag_p99": 1.2,
    "memory_mb": 2.0,
    "unaccounted": 0.0,
    "left": 0.0,
}


@dataclass(frozen=True)
class Load:
    """What is played, and how."""

    rollouts: int
    turns: int
    upstream: str
    agents: Path


async def recorded(turns: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The requests of a rollout, and the streams that answered them."""
    played: Script = script(turns, int(MEGABYTES * 1e6 / turns))
    bodies = [json.loads(request.body) for request in await record(played)]
    answers = []
    async with ScriptedModel(ScriptPolicy(played)) as model, aiohttp.ClientSession() as http:
        for body in bodies:
            async with http.post(f"{model.base_url}/chat/completions", json=body) as response:
                answers.append(await response.text())
    return bodies, answers


async def play(worker: WatchedWorker, load: Load, rollouts: int, round_name: str) -> list[WireEpisode | None]:
    """Rollouts, all at once; None is one that is hung."""
    endpoint = EvalClientConfig(base_url=load.upstream, api_key_var="NO_SUCH_KEY")

    async def one(number: int) -> WireEpisode | None:
        data = {"idx": number, "prompt": "Do what the script says."}
        asked = worker.client.run(endpoint, round_name, SamplingConfig(), data)
        try:
            return await asyncio.wait_for(asked, ROUND_SECONDS)
        except TimeoutError:
            return None

    return await asyncio.gather(*(one(number) for number in range(rollouts)))


def outcome(number: int, episode: WireEpisode | None, turns: int, round_name: str) -> str:
    """What became of a rollout."""
    if episode is None:
        return "hung"
    if len(episode.traces) != 1:
        return "lost"
    (trace,) = episode.traces
    scored = [reward.value for reward in trace.rewards.values() if reward is not None]
    if round_name == "faulty" and is_killed(number):
        own = trace.num_turns > 0  # from its first tool call on an agent's programs can have killed it
        sound = trace.stop_condition == "agent_error" and scored if own else not trace.ok and not scored
        return "killed" if sound else f"killed after {trace.num_turns} turns: {trace.stop_condition} {scored}"
    if not trace.ok:
        return f"error: {trace.last_error.type if trace.last_error else episode.errors}"
    if (trace.num_turns, trace.num_branches) != (turns, 1):
        return f"{trace.num_turns} turns, {trace.num_branches} branches"
    return "scored" if scored == [1.0] else "not scored"


@dataclass(frozen=True)
class Seen:
    """One environment under the load."""

    rounds: dict[str, dict[str, float]]
    outcomes: dict[str, Counter[str]]
    left: dict[str, dict[str, int]]

    @property
    def unaccounted(self) -> int:
        """Rollouts that are not what they should be."""
        return sum(n for of in self.outcomes.values() for name, n in of.items() if name not in {"scored", "killed"})


async def watch(kind: str, load: Load, scratch: Path) -> Seen:
    """Its rounds, one after the other in one worker."""
    seen = Seen({}, {}, {})
    harness = {"id": "simulated-agent", "agents": str(load.agents)}
    agent = {"harness": harness, "runtime": {"type": "subprocess"}}
    config = {"id": ENVIRONMENTS[kind], "taskset": {"id": "simulated-agent"}, "agent": agent}
    async with watched_worker(config, scratch) as worker:
        await play(worker, load, WARM_UP, "short")
        small = (await worker.watched())["resident"]
        await play(worker, load, load.rollouts, "brief")  # verifiers keeps the servers that so many need
        before = await worker.held()
        for name in ROUNDS[kind]:
            await worker.begin()
            started = time.monotonic()
            episodes = await play(worker, load, load.rollouts, name)
            seconds = time.monotonic() - started
            watched = await worker.watched()
            seen.rounds[name] = {**watched, "seconds": seconds, "growth": watched["peak"] - small}
            ends = [outcome(number, episode, load.turns, name) for number, episode in enumerate(episodes)]
            seen.outcomes[name] = Counter(ends)
            seen.left[name] = await worker.more_than(before, SETTLE_SECONDS)
    return seen


async def measure(options: argparse.Namespace) -> tuple[dict[str, float], dict[str, object]]:
    """All ratios, and what they are made of."""
    bodies, answers = await recorded(options.turns)
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        sockets, requests, streams = scratch / "agents", scratch / "bodies.json", scratch / "answers.json"
        requests.write_text(json.dumps(bodies))
        streams.write_text(json.dumps(answers))
        speed = ["--seconds", str(options.seconds), "--spread", str(options.spread)]
        async with AsyncExitStack() as stack:
            _, upstream = await stack.enter_async_context(program("_slow_model.py", "--answers", str(streams), *speed))
            played = ("--bodies", str(requests), "--socket", str(sockets))
            await stack.enter_async_context(program("_simulated_agents.py", *played))
            load = Load(options.rollouts, len(bodies), upstream, sockets)
            seen = {kind: await watch(kind, load, scratch) for kind in ENVIRONMENTS}
    return figures(seen, bodies, options.rollouts)


def figures(
    seen: dict[str, Seen], bodies: Sequence[dict[str, Any]], rollouts: int
) -> tuple[dict[str, float], dict[str, object]]:
    """The ratios and the rest."""
    ours = seen["ours"]
    messages = len(json.dumps(bodies[-1])) / 1e6
    grown = {kind: one.rounds["steady"]["growth"] / 1e6 / rollouts for kind, one in seen.items()}
    lags = {kind: one.rounds["steady"]["lag_p99"] for kind, one in seen.items()}
    ratios = {
        "lag_p99": lags["ours"] / lags["verifiers"],
        "cpu": ours.rounds["steady"]["cpu"] / seen["verifiers"].rounds["steady"]["cpu"],
        "memory_mb": max(0.0, grown["ours"] - messages),
        "memory": grown["ours"] / grown["verifiers"],
        "unaccounted": float(ours.unaccounted),
        "left": float(sum(n for of in ours.left.values() for n in of.values())),
    }
    shown: dict[str, object] = {"rollouts": f"{rollouts} of {len(bodies)} turns, messages of {messages:.3f} MB"}
    for kind, one in seen.items():
        for name, figure in one.rounds.items():
            lag = ", ".join(f"{key[4:]} {1e3 * figure[key]:.1f}" for key in ("lag_p50", "lag_p99", "lag_max"))
            shown[f"{name}, {kind}"] = (
                f"loop lag (ms) {lag}; {figure['seconds']:.0f} s, of them {figure['cpu']:.0f} s of CPU; "
                f"{dict(one.outcomes[name])}; left {one.left[name]}"
            )
    shown["growth for one rollout (MB)"] = ", ".join(f"{kind} {value:.2f}" for kind, value in grown.items())
    return ratios, shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rollouts", type=int, default=256, help="at once (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=20, help="of a rollout (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="the model's, mean (default: %(default)s)")
    parser.add_argument("--spread", type=float, default=1.0, help="around it (default: %(default)s)")
    options = parser.parse_args()
    ratios, shown = asyncio.run(measure(options))
    report("scale", ratios, GOALS, {**shown, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
