"""Our environment beside verifiers' own `opencode` harness: the same rows, the same scripted model, the same verifiers.

  ours     `--env.id opencode-env`: OpenCode 1 in the confined local sandbox
  theirs   verifiers' harness (from 0.4.1 on): OpenCode 2 over ACP, in a box without confinement that stands for the
           container it asks for. Where the registry has no `@opencode/cli`, the preview of 28 August 2026

Odd rows: output of the model that is one linear conversation; what counts is how many branches, and how many tokens in
all of them, the trace has. Fault rows: what goes wrong, and what the rollout then is. Seconds are those of a rollout
without its installation, one at a time; installation is measured apart, into an empty directory with an empty cache.

Run: uv run python scripts/test_next.py --run benchmarks/why_ours.py [--json]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_env.agents.named.npm import make_tree, node_tree
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from opencode_env.agents.opencode.env import opencode2_tree
from opencode_env.conformance.user_home import VF_EVAL, FinishedEvaluation, UserHome, closed_port
from opencode_env.scripted_model import ScriptedModel
from verifiers.v1.trace import WireTrace

from benchmarks._measure import machine, report
from benchmarks._odd_models import FAULTS, ODD, OddModel
from tests.support.opencode2 import PREVIEW, npm_with_opencode2

PLUGINS = Path(__file__).parent / "plugins"
sys.path.append(str(PLUGINS))  # a saved trace names its runtime's class
HARNESS = "verifiers.v1.harnesses.opencode"
VERSION = "2.1.4"
"""The OpenCode of verifiers' harness."""
GOALS = {"branches": 1.0, "tokens": 1.0, "seconds": 1.0}
AT_ONCE, FAULTS_AT_ONCE = 2, 4
"""Rollouts side by side; those with faults wait most of the time. OpenCode 2 refuses a session that is not ready within
5 s, as happens on a busy machine."""
TIME_LIMIT_SECONDS = 20.0
AGENT_SECONDS = 120.0
"""The longest that a row without a limit of its own may take."""
IN_A_BOX = """#!/bin/sh
exec bwrap --dev-bind / / --proc /proc --unshare-pid --die-with-parent {binds} -- {vf_eval} "$@"
"""


@dataclass(frozen=True)
class Side:
    """One of the two."""

    name: str
    arguments: tuple[str, ...]
    program: Path
    home: UserHome

    async def play(
        self, run: str, base_url: str, rows: Sequence[Mapping[str, Any]], at_once: int
    ) -> FinishedEvaluation:
        """Run the rows.

        Raises:
            SystemExit: nothing came out of it.
        """
        path = self.home.root / f"{run}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        arguments = ["--env.taskset.id", "plain-tasks", "--env.taskset.rows", str(path), "-c", str(at_once)]
        arguments += ["--env.agent.timeout.rollout", str(AGENT_SECONDS), *self.arguments]
        finished = await self.home.run(f"{self.name}-{run}", base_url, *arguments, program=self.program)
        if len(finished.episodes) != len(rows):
            raise SystemExit(f"{self.name}: {len(finished.episodes)} of {len(rows)} rows: {finished.log[-2000:]}")
        return finished


def row(name: str, **fields: Any) -> dict[str, Any]:
    """A row that the model knows by its prompt."""
    return {"id": name, "prompt": f"row {name}: do the work", "check": "grep -qx 42 answer.txt", **fields}


def ours(root: Path) -> Side:
    """Our environment as it comes."""
    ensure_build(DEFAULT_VERSION, host_platform())
    return Side("ours", ("--env.id", "opencode-env"), VF_EVAL, UserHome(root, [PLUGINS]))


def theirs(root: Path) -> Side:
    """verifiers' harness, with what its set-up would download already in place."""
    binds = [make_tree(node_tree()), make_tree(opencode2_tree(VERSION))]
    shown = root / "var-tmp"
    build = shown / "vf-opencode" / VERSION / "node_modules"
    build.parent.mkdir(parents=True)
    build.symlink_to(binds[1].source / "node_modules")
    for bind in binds:
        for place, path in bind.links:
            link = shown / Path(place).relative_to("/var/tmp")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(bind.source / path)
    program = root / "vf-eval"
    home = UserHome(root / "home", [PLUGINS])
    private = (
        f"--bind {shown} /var/tmp --bind {home.temporary} /tmp"
        if not root.is_relative_to("/tmp")
        else f"--bind {shown} /var/tmp"
    )
    program.write_text(IN_A_BOX.format(binds=private, vf_eval=VF_EVAL))
    program.chmod(0o755)
    runtime = ("--env.agent.runtime.type", "custom", "--env.agent.runtime.import-path", "open_box.OpenBox")
    return Side("theirs", ("--env.agent.harness.id", "opencode", *runtime), program, home)


def outcome(finished: FinishedEvaluation, name: str) -> str:
    """What a rollout was in the end: an error with its message, or how it stopped and its reward."""
    episode = finished.episode(name)
    if not any(trace.calls for trace in episode.traces):
        return "no model call: run it again on a quieter machine"
    if not episode.ok:
        return " ".join(finished.error(name).split())[:300]
    trace = episode.traces[0]
    return f"{trace.stop_condition}, reward {trace.reward}"


def in_short(outcome: str) -> str:
    """An outcome without an error's message."""
    return outcome.partition(": ")[0]


def tokens(trace: WireTrace) -> int:
    """Tokens of all branches, which is what a trainer gets."""
    return sum(branch.num_total_tokens for branch in trace.branches)


@dataclass(frozen=True)
class Seen:
    """What one side did with sound and odd turns."""

    odd: Mapping[str, WireTrace]
    seconds: float
    """Median of a rollout, from its sandbox to its end."""


async def look(side: Side, quiet: int) -> Seen:
    """Play the plain rows one by one, and the odd ones."""
    async with ScriptedModel(OddModel()) as model:
        one_by_one = [row("plain", idx=index) | {"id": f"plain {index}"} for index in range(quiet)]
        timed = await side.play("timed", model.base_url, one_by_one, 1)
        odd = await side.play("odd", model.base_url, [row(name) for name in ODD], AT_ONCE)
    spans = [episode.traces[0].timing for episode in timed.episodes]
    seconds = [time.scoring.end - time.boot.start for time in spans]
    return Seen({name: odd.trace(name) for name in ODD}, statistics.median(seconds))


async def fail(side: Side, started: asyncio.Event) -> Mapping[str, str]:
    """Play the faults on one side; `started` is set when the first of its agents run."""
    limits = {"time limit": {"timeout": {"agent": TIME_LIMIT_SECONDS}}}
    faults = [row(name, **limits.get(name, {})) for name in FAULTS]
    dead = f"http://127.0.0.1:{closed_port()}/v1"
    async with ScriptedModel(OddModel()) as model:
        playing = asyncio.gather(
            side.play("faults", model.base_url, faults, FAULTS_AT_ONCE),
            side.play("dead", dead, [row("nobody answers")], 1),
        )
        while len(model.requests) < FAULTS_AT_ONCE and not playing.done():
            await asyncio.sleep(0.1)
        started.set()
        failed, unreachable = await playing
    outcomes = {name: outcome(failed, name) for name in FAULTS}
    return {**outcomes, "nobody answers": outcome(unreachable, "nobody answers")}


async def fail_both(left: Side, right: Side) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Play the faults on both sides, where agents wait most of the time: the second once the first's have started."""
    started = asyncio.Event()
    first = asyncio.ensure_future(fail(left, started))
    await started.wait()
    second = await fail(right, asyncio.Event())
    return await first, second


def installation(npm: Path) -> dict[str, float]:
    """Seconds, bytes over the network and bytes on the disk of what their set-up fetches in a new container."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "PATH": f"{npm}:{os.environ['PATH']}", "npm_config_cache": f"{scratch}/cache"}
        argv = ["npm", "install", "--prefix", f"{scratch}/tree", "--no-audit", "--no-fund", "--omit=dev"]
        started = time.monotonic()
        subprocess.run([*argv, f"@opencode/cli@{VERSION}"], check=True, env=env, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - started
        sizes = {name: size_of(Path(scratch, name)) for name in ("cache", "tree")}
    return {"seconds": seconds, "fetched": sizes["cache"], "installed": sizes["tree"]}


def size_of(directory: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def print_side_by_side(title: str, cells: Mapping[str, tuple[str, str]]) -> None:
    """A table of three columns."""
    print(f"{title:30} {'ours':38} theirs")
    for name, (left, right) in cells.items():
        print(f"  {name:28} {left:38} {right}")


def compare(options: argparse.Namespace) -> tuple[dict[str, float], dict[str, object]]:
    """Run both sides; returns ratios of ours to theirs, and the details."""
    with tempfile.TemporaryDirectory() as scratch:
        npm = npm_with_opencode2(Path(scratch, "npm"))
        os.environ["PATH"] = f"{npm}:{os.environ['PATH']}"
        os.environ["OPENCODE_ENV_CACHE"] = options.cache or f"{scratch}/cache"
        fetched = installation(npm)
        sides = ours(Path(scratch, "ours")), theirs(Path(scratch, "theirs"))
        left, right = (asyncio.run(look(side, options.rollouts)) for side in sides)
        outcomes = asyncio.run(fail_both(*sides))
        build = size_of(ensure_build(DEFAULT_VERSION, host_platform()).directory)
    branches = {name: (len(left.odd[name].branches), len(right.odd[name].branches)) for name in ODD}
    counted = {name: (tokens(left.odd[name]), tokens(right.odd[name])) for name in ODD}
    cells = {
        name: (f"{b[0]} branches, {counted[name][0]} tokens", f"{b[1]} branches, {counted[name][1]} tokens")
        for name, b in branches.items()
    }
    print_side_by_side("output of the model", cells)
    print_side_by_side(
        "fault", {name: (in_short(outcomes[0][name]), in_short(outcomes[1][name])) for name in outcomes[0]}
    )
    mine, other = (sum(pair[side] for pair in branches.values()) for side in (0, 1))
    ratios = {
        "branches": mine / other,
        "tokens": sum(pair[0] / counted["plain"][0] for pair in counted.values())
        / sum(pair[1] / counted["plain"][1] for pair in counted.values()),
        "seconds": left.seconds / right.seconds,
    }
    detail: dict[str, object] = {
        "branches": f"{mine} and {other} of {len(ODD)}",
        "seconds of a rollout": f"{left.seconds:.1f} and {right.seconds:.1f}",
        "our install per sandbox": f"0 s, 0 bytes (shown read-only; {build / 1e6:.0f} MB once per machine)",
        "their install per new container": f"{fetched['seconds']:.1f} s, {fetched['fetched'] / 1e6:.0f} MB fetched, "
        f"{fetched['installed'] / 1e6:.0f} MB on disk, and Node.js before it",
        "outcomes": {name: [side[name] for side in outcomes] for name in outcomes[0]},
        **machine(),
        "opencode": f"{DEFAULT_VERSION} and {PREVIEW}",
    }
    return ratios, detail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rollouts", type=int, default=3, help="timed rollouts per side (default: %(default)s)")
    parser.add_argument("--cache", help="keep what is installed in this directory")
    options = parser.parse_args()
    if find_spec(HARNESS) is None:
        why = "this verifiers has no opencode harness: uv run python scripts/test_next.py --run benchmarks/why_ours.py"
        report("why_ours", {}, GOALS, {"not run": why, **machine()}, as_json=options.json)
        return
    ratios, detail = compare(options)
    report("why_ours", ratios, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
