"""Many rollouts in Prime Sandboxes: what they cost our environment ÷ the same in confined local ones, in one run.

The platform is the tests' server that speaks Prime's API, in a process of its own, with delays: 0.5 s until a creation
is answered, 1.5 s until the sandbox is up, 0.3 s for a deletion, 0.05 s for any other request. The SDK, its connections
and our runtime are the real ones; behind the sandboxes are light boxes without a process (`_light_boxes.py`), so that
256 at once fit on two cores. OpenCode is recorded once, and simulated agents send its requests to the interception, as
in `scale.py`; the model, a process of its own, takes its time for each answer. All rollouts run in one environment
worker (verifiers' `EnvServer`), so many at a time; before anything is measured, as many have run.

  cpu                   of the worker's process for one rollout ÷ the same with confined local sandboxes, which run a
                        program that sends the same requests. Neither counts sandboxes, agents or model; what watching
                        costs is taken off both
  wall                  seconds of all rollouts ÷ the delays on their critical paths: the server's, the agents' and the
                        model's. How far the status of a sandbox is polled behind its coming up is ours, not a delay
  memory                size of the worker's process after all rollouts ÷ before, both with nothing running
  left                  sandboxes that live at the server when all is over, and what the worker holds then beyond what
                        it held before (tasks, descriptors, threads, objects of rollouts)
  unaccounted           rollouts that were not scored with all their turns
  seen_after            seconds from the end of the agent's program to its being seen in the worker, median
  waiting_requests      HTTP requests at the server in a second while all agents play. None is needed: the bound is what
                        it would be if every stream were lost and every end looked for, one request per agent in 20 s
  requests_first_call   HTTP requests of a rollout of the real OpenCode before its first model call, in an image that
                        holds it, with a confined sandbox behind

`--whole` plays 1,000 rollouts at 256 at once, and beside them 16 of the real OpenCode, two at a time.

Run: uv run python benchmarks/remote.py [--json] [--whole] [--rollouts 120] [--at-once 40] [--turns 8] [--seconds 3]
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, report
from benchmarks._remote_opencode import Beside, opencode_beside
from benchmarks._remote_rollouts import Load, Seen, watch_local, watch_remote
from benchmarks._watched_worker import program
from benchmarks.scale import recorded

GOALS = {
    "cpu": 2.0,
    "wall": 1.15,
    "memory": 1.1,
    "left": 0.0,
    "unaccounted": 0.0,
    "seen_after": 1.0,
    "requests_first_call": 8.0,
}
LOOK_AGAIN_SECONDS = 20.0
"""How long a command waits in the sandbox whose end is looked for: `_WAIT_S` of our runtime."""
LOCAL_ROLLOUTS = 24
WHOLE = {"rollouts": 1000, "at_once": 256, "turns": 10, "seconds": 5.0}


@dataclass(frozen=True)
class Measured:
    """All that was seen."""

    local: Seen
    remote: Seen
    opencode: Beside


async def measure(options: argparse.Namespace) -> Measured:
    """Everything, one after the other but for the real OpenCode of the whole form."""
    started = time.monotonic()
    bodies, answers = await recorded(options.turns)
    print(f"  OpenCode recorded: {time.monotonic() - started:.0f} s", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        sockets, streams, shown = scratch / "agents", scratch / "answers.json", scratch / "simulated"
        shown.mkdir()
        requests = shown / "bodies.json"
        requests.write_text(json.dumps(bodies))
        (shown / "program.py").write_text(Path(__file__).with_name("_simulated_program.py").read_text())
        streams.write_text(json.dumps(answers))
        speed = ["--seconds", str(options.seconds), "--spread", "0"]
        async with AsyncExitStack() as stack:
            _, upstream = await stack.enter_async_context(program("_slow_model.py", "--answers", str(streams), *speed))
            played = ("--bodies", str(requests), "--socket", str(sockets))
            await stack.enter_async_context(program("_simulated_agents.py", *played))
            load = Load(upstream, sockets, shown, len(bodies), options.seconds)
            local = await watch_local(load, options.local, scratch)
            beside = asyncio.ensure_future(opencode_beside(options.opencode))
            if not options.whole:
                await beside
            remote = await watch_remote(load, options.rollouts, options.at_once, scratch)
            return Measured(local, remote, await beside)


def figures(seen: Measured, options: argparse.Namespace) -> tuple[dict[str, float], dict[str, object]]:
    """The ratios and the rest."""
    local, remote, beside = seen.local, seen.remote, seen.opencode
    ratios = {
        "cpu": remote.cpu_of_one / local.cpu_of_one,
        "wall": sum(remote.walls) / sum(remote.delays),
        "memory": remote.size_after / remote.size_before,
        "left": float(remote.living + beside.living + sum(remote.left.values())),
        "unaccounted": float(options.rollouts - remote.outcomes["scored"] + beside.failed),
        "seen_after": statistics.median(remote.seen_after),
        "waiting_requests": remote.waiting_requests / max(remote.waiting_seconds, 1e-9),
        "requests_first_call": float(beside.before_first_call),
    }
    shown: dict[str, object] = {
        "rollouts": f"{options.rollouts} at {options.at_once} at once, {options.turns} turns of {options.seconds:g} s",
        "CPU of the worker for one (s)": f"prime {remote.cpu_of_one:.3f}, local {local.cpu_of_one:.3f}",
        "a rollout (s)": f"{statistics.mean(remote.walls):.1f}, delays {statistics.mean(remote.delays):.1f}; "
        f"local {statistics.mean(local.walls):.1f}, delays {statistics.mean(local.delays):.1f}",
        "all rollouts (s)": f"{remote.seconds:.0f}, of them {remote.cpu:.0f} s of the worker's CPU",
        "worker (MB)": f"{remote.size_before / 1e6:.0f} before, {remote.peak / 1e6:.0f} at most, "
        f"{remote.size_after / 1e6:.0f} after: {(remote.peak - remote.size_before) / 1e6 / options.at_once:.2f} each",
        "outcomes": f"prime {dict(remote.outcomes)}, local {dict(local.outcomes)}",
        "left": remote.left,
        "requests of one rollout": {name: round(n / options.rollouts, 2) for name, n in remote.requests.items()},
        "all agents played for (s)": round(remote.waiting_seconds, 1),
        "real OpenCode": f"{beside.rollouts} rollouts, {beside.failed} failed",
        "wall, local": round(sum(local.walls) / sum(local.delays), 3),
    }
    return ratios, shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--whole", action="store_true", help="1,000 rollouts at 256 at once (ten minutes)")
    parser.add_argument("--rollouts", type=int, default=120, help="in Prime Sandboxes (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=40, help="of them (default: %(default)s)")
    parser.add_argument("--local", type=int, default=LOCAL_ROLLOUTS, help="in local ones (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=8, help="of a rollout (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the model, a turn (default: %(default)s)")
    parser.add_argument("--opencode", type=int, default=1, help="rollouts of OpenCode (default: %(default)s)")
    options = parser.parse_args()
    if options.whole:
        for name, value in {**WHOLE, "opencode": 16}.items():
            setattr(options, name, value)
    ratios, shown = figures(asyncio.run(measure(options)), options)
    goals = {**GOALS, "waiting_requests": options.at_once / LOOK_AGAIN_SECONDS}
    report("remote", ratios, goals, {**shown, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
