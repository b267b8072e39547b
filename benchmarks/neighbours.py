"""What a hostile rollout costs its neighbours: wall of honest rollouts beside it ÷ beside an honest busy rollout.

One environment with its protections on plays five rollouts of the real OpenCode at once, beside one more: alternately
one that computes on every core, as a build does, and one that attacks:

  processes     as many computing processes as it gets, each in a session of its own
  memory        3 GiB, filled again whenever they are taken away
  disk          2 GiB of files in every directory that can be written, again and again
  descriptors   sent over sockets and never received, by four processes
  connections   to the path to the model, half a request each, opened again when closed
  requests      32,000 and 50,000 messages, 2 million lists, 100,000 levels
  logs          2 GiB into OpenCode's own logs
  bombs         three answers that take the math workers as long as they may

Limits that could not be reached safely (`max_memory`, …) are lower than by default, for both. An attack's ratio is its
best round's, against the busy rollout's in its middle. Then the same attacks with every protection off and fewer
neighbours: what each held (`held_to_limit` above 1: it was the protection that held it back), and their errors.

Run: uv run python benchmarks/neighbours.py [--json] [--rows disk …] [--rounds 1] [--rollouts 5] [--bare-rollouts 1]
"""

import argparse
import asyncio
import json
import logging
import math
import resource
import secrets
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_env.cli_agent import interception_servers
from opencode_env.cli_agent.interception import call_limits, endpoint, request_steps, server
from opencode_rubrics.math import worker_pool
from rollout_sandbox.confined import network

from benchmarks._contenders import model_server
from benchmarks._measure import machine, report
from benchmarks._neighbourhood import BOMBS, BUSY, ROWS, Neighbourhood, neighbourhood, scripts

GOAL = 1.25
BARE_LIMIT, BARE_BOMBS = 3.0, 12.0
"""Seconds that the neighbours get without protections; beside bombs they have to be over to tell."""
OPEN_FILES = 4096
"""The hard limit of open files of either environment's process, as on many machines; the soft one is 1,024."""
GIB = 1 << 30
LIMITS: dict[str, float] = {
    "processes": 512,
    "memory": GIB,
    "disk": GIB,
    "descriptors": OPEN_FILES // 2,
    "connections": OPEN_FILES // 8,
    "requests": 1,
    "logs": GIB,
    "bombs": 1.0,
}
"""How much of it one rollout may hold: processes, bytes, bytes, descriptors on the way; descriptors of the
process (half its soft limit); bounds of a request, bytes, and seconds of a neighbour's scoring."""

PROTECTED: dict[str, Any] = {
    "sandbox": {"max_processes": 512, "max_memory": GIB, "max_disk": GIB},
}
BARE: dict[str, Any] = {
    "sandbox": {
        **dict.fromkeys(("max_processes", "max_memory", "max_disk", "max_open_files")),
        "own_user": False,
    },
    "gateway": {"max_body": sys.maxsize, "max_parallel_calls": sys.maxsize, "filter_requests": False},
}


def first_come_first_served() -> None:
    """Switch off what has no option: that long answers hold half of the math workers at most, at half the weight, and
    the bounds of the gateway and of the connections from a sandbox."""
    worker_pool._MOMENT = math.inf
    request_steps.MAX_MESSAGES = request_steps.MAX_VALUES = request_steps.MAX_BODY_DEPTH = sys.maxsize
    request_steps.MAX_OPEN, call_limits.SHARE = sys.maxsize, 1e9
    request_steps.BODY_IDLE_SECONDS = vars(server)["BODY_IDLE_SECONDS"] = 1e9
    vars(endpoint)["keys_of"] = lambda config: frozenset()
    interception_servers.raise_open_files = lambda: None
    network.MAX_CONNECTIONS, network.IDLE_SECONDS = sys.maxsize, 1e6


Plays = dict[str, list[dict[str, Any]]]
"""What became of each attack, round by round."""


async def play_protected(base_url: str, token: str, options: argparse.Namespace) -> Plays:
    """The plays of each attack with the protections on, each with the wall of the busy rollout's in the same round."""
    found: Plays = {name: [] for name in options.rows}
    async with neighbourhood(base_url, token, PROTECTED) as here:
        for number in range(options.rounds):
            rows = options.rows if number % 2 == 0 else options.rows[::-1]
            half = len(rows) // 2
            plays = [(name, await play(here, name, options.rollouts)) for name in rows[:half]]
            busy = await play(here, BUSY, options.rollouts)
            plays += [(name, await play(here, name, options.rollouts)) for name in rows[half:]]
            for name, played in plays:
                found[name].append({**played, "busy": busy["wall"]})
    return found


async def play_bare(base_url: str, token: str, options: argparse.Namespace) -> Plays:
    """One play of each attack without protections."""
    async with neighbourhood(base_url, token, BARE) as here:
        seconds = {name: BARE_BOMBS if name == BOMBS else BARE_LIMIT for name in options.rows}
        return {name: [await play(here, name, options.bare_rollouts, limit)] for name, limit in seconds.items()}


async def play(here: Neighbourhood, attack: str, rollouts: int, limit: float = 120.0) -> dict[str, Any]:
    """One play, and a line about it on standard error."""
    started = time.monotonic()
    played = await here.beside(attack, rollouts, limit)
    # JSON knows no infinity.
    wall = min(played.wall, 10 * limit)
    took = f"{attack}: {wall:.1f} of {time.monotonic() - started:.1f} s"
    print(f"  {took}, {played.errors}, {played.reports[-1:]}", file=sys.stderr, flush=True)
    return {**asdict(played), "wall": wall, "held": played.held(attack)}


def contender(options: argparse.Namespace) -> None:
    """One environment, in this process; its plays are the last line that it prints."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, OPEN_FILES))
    plays = play_protected
    if options.contender == "bare":
        first_come_first_served()
        plays = play_bare
    print(json.dumps(asyncio.run(plays(options.base_url, options.token, options))))


async def measure(options: argparse.Namespace) -> tuple[Plays, Plays]:
    """The plays with the protections on, and without."""
    token = secrets.token_hex(4)
    async with model_server(scripts(token)) as base_url:
        protected = await run_contender("protected", base_url, token, options)
        bare = await run_contender("bare", base_url, token, options) if options.bare_rollouts else {}
    return protected, bare


async def run_contender(name: str, base_url: str, token: str, options: argparse.Namespace) -> Plays:
    """One environment in a process of its own, which does not outlive this one."""
    argv = [sys.executable, __file__, "--contender", name, "--base-url", base_url, "--token", token]
    argv += ["--rounds", str(options.rounds), "--rollouts", str(options.rollouts)]
    argv += ["--bare-rollouts", str(options.bare_rollouts), "--rows", *options.rows]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        raise SystemExit(f"the {name} environment failed with exit code {process.returncode}")
    plays: Plays = json.loads(out.splitlines()[-1])
    return plays


def results(protected: Plays, bare: Plays) -> tuple[dict[str, float], dict[str, float], dict[str, object]]:
    """Ratios, goals, detail."""
    ratios: dict[str, float] = {}
    detail: dict[str, object] = {}
    for name, plays in protected.items():
        ratios[name] = min(play["wall"] / play["busy"] for play in plays)
        detail[name] = protected_detail(plays, LIMITS[name])
        if name in bare:
            detail[f"{name}, without protections"] = bare_detail(bare[name][0], LIMITS[name])
    failed = sum(len(play["errors"]) for plays in protected.values() for play in plays)
    return {**ratios, "errors": failed}, {**dict.fromkeys(ratios, GOAL), "errors": 0}, detail


def protected_detail(plays: list[dict[str, Any]], limit: float) -> dict[str, object]:
    """What the attack did, and what its neighbours saw of it."""
    return {
        "seconds": [round(play["wall"], 1) for play in plays],
        "beside_busy": [round(play["busy"], 1) for play in plays],
        "held_to_limit": round(max(play["held"] for play in plays) / limit, 2),
        "attackers": [one for play in plays for one in play["reports"]][:4],
        "errors": [error for play in plays for error in play["errors"]],
    }


def bare_detail(play: dict[str, Any], limit: float) -> dict[str, object]:
    """The same without protections."""
    return {"held_to_limit": round(play["held"] / limit, 2), "errors": play["errors"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="attacks (default: all)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds through all of them (default: %(default)s)")
    parser.add_argument("--rollouts", type=int, default=5, help="honest rollouts at once (default: %(default)s)")
    parser.add_argument("--bare-rollouts", type=int, default=1, help="without protections; 0: leave that out")
    parser.add_argument("--contender", choices=("protected", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--base-url", help=argparse.SUPPRESS)
    parser.add_argument("--token", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        contender(options)
        return
    ratios, goals, detail = results(*asyncio.run(measure(options)))
    report("neighbours", ratios, goals, {**detail, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
