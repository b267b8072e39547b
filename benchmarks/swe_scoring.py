"""What it costs to judge a change apart from the agent, and to read 50,000 rows.

    uv run python benchmarks/swe_scoring.py [--json] [--runs 3] [--rows 50000] [--commits 20000]

The suite by hand: the same sandbox, prepared (files, change and tests in place), and the suite's command in it. The
figure is scoring ÷ by hand, in CPU seconds of this process and its children and in wall seconds; the start of the
second sandbox is part of scoring.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from opencode_rubrics.swe.grading import stage_tests
from opencode_rubrics.swe.programs import argv_of
from rollout_sandbox.toolbox.command import run_command

from benchmarks._measure import report
from tests.swe.playing import environment, patching, tasks_of
from tests.swe.repositories import CALCULATOR, PYTEST, made, swelego

GOALS = {"scoring CPU": 1.2, "scoring wall": 1.2, "reading memory": 0.5, "seconds to the first task": 2.0}
Found = tuple[dict[str, float], dict[str, object]]
"""Ratios, and what else is said."""

_BUSY = """import time

def test_busy():
    end = time.process_time() + {seconds}
    while time.process_time() < end:
        pass
"""
_READ = """
import json, sys, time, resource
started = time.monotonic()
from opencode_swe import OpenCodeSweTaskset, OpenCodeSweTasksetConfig
taskset = OpenCodeSweTaskset(OpenCodeSweTasksetConfig(id="opencode-swe", dataset=sys.argv[1]))
before, first, count = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, None, 0
begun = time.monotonic()
for task in taskset.load():
    first = first or time.monotonic() - begun
    count += 1
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"first": first, "all": time.monotonic() - begun, "count": count, "kib": peak - before}))
"""
_HOLD = """
import json, sys, resource
import datasets
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
table = datasets.Dataset.from_json(sys.argv[1], keep_in_memory=True, cache_dir=sys.argv[2])
rows = table.num_rows
print(json.dumps({"count": rows, "kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before}))
"""


def cpu() -> float:
    """CPU seconds of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def scoring(runs: int, seconds: float) -> Found:
    """The figure of one row whose suite is busy for `seconds`."""
    row, found = swelego(CALCULATOR), made(CALCULATOR)
    row |= {"test_cmd": f"{PYTEST} -rA", "test_timeout": 1800}
    (task,) = tasks_of([row], Path(tempfile.mkdtemp()))
    problem = task.data.swe
    assert problem is not None
    busy = {"tests/test_busy.py": _BUSY.format(seconds=seconds)}
    problem = problem.model_copy(update={"test_files": busy})
    task = task.with_data(swe=problem)
    env, argv = environment(), ["sh", "-c", 'cd "$1" && exec bash -c "$2"', "agent"]
    measured: dict[str, list[tuple[float, float]]] = {"neither": [], "by hand": [], "scoring": []}
    for what in [*measured] * runs:
        used = cpu()
        async with env.box(task) as box:
            await box.agents.run([*argv, box.workdir, patching(found.gold)], {})
            if what != "scoring":
                await stage_tests(box.runtime, problem, box.workdir)
            begun = time.monotonic()
            if what == "scoring":
                trace = await box.score()
                assert trace.reward == 1.0, trace.info
            elif what == "by hand":
                done = await run_command(box.runtime, problem.command, workdir=box.workdir, timeout=1800)
                assert done.exit_code == 0, done
            wall = time.monotonic() - begun
        # What ran in a sandbox is counted when the sandbox has ended.
        measured[what].append((wall, cpu() - used))
    walls = {what: median(wall for wall, _ in found) for what, found in measured.items()}
    used_by = {what: median(used for _, used in found) for what, found in measured.items()}
    ratio = (used_by["scoring"] - used_by["neither"]) / (used_by["by hand"] - used_by["neither"])
    told = {what: f"wall {walls[what]:.2f} s, CPU {used_by[what]:.2f} s with the sandbox" for what in measured}
    return {"scoring CPU": ratio, "scoring wall": walls["scoring"] / walls["by hand"]}, dict(told)


def hiding(commits: int) -> Found:
    """What it takes to hide the future of a repository with so many commits, half of them in the future."""
    with tempfile.TemporaryDirectory() as directory:
        stream = []
        for number in range(commits):
            text = f"line {number}\n" * 20
            message = f"commit {number}"
            stream.append(
                f"commit refs/heads/main\ncommitter a <a@b> {1_600_000_000 + number} +0000\n"
                f"data {len(message)}\n{message}\nM 644 inline src/{number % 2000}.txt\ndata {len(text)}\n{text}\n"
            )
        subprocess.run(["git", "init", "-q", "-b", "main", directory], check=True)
        fast = ["git", "-C", directory, "fast-import", "--quiet"]
        subprocess.run(fast, input="".join(stream), text=True, check=True)
        subprocess.run(["git", "-C", directory, "checkout", "-q", f"main~{commits // 2}"], check=True)
        begun, used = time.monotonic(), cpu()
        subprocess.run(argv_of("hide_history", directory, ""), check=True)
        told = f"wall {time.monotonic() - begun:.2f} s, CPU {cpu() - used:.2f} s"
    return {}, {f"hiding of {commits // 2} commits": told}


def reading(rows: int) -> Found:
    """The figures of reading a dataset."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "rows.jsonl")
        with path.open("w") as file:
            for number in range(rows):
                row: dict[str, Any] = {
                    "instance_id": f"row-{number}",
                    "problem_statement": f"Mend it, number {number}. " * 40,
                    "image_name": f"registry.example/image:{number}",
                    "base_commit": f"{number:040x}",
                    "patch": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n" * 20,
                    "test_patch": "--- a/tests/test_x.py\n+++ b/tests/test_x.py\n@@ -1 +1 @@\n-a\n+b\n" * 20,
                    "test_cmd": "pytest -rA tests/test_x.py",
                    "FAIL_TO_PASS": json.dumps([f"tests/test_x.py::test_{i}" for i in range(5)]),
                    "PASS_TO_PASS": json.dumps([f"tests/test_x.py::test_kept_{i}" for i in range(60)]),
                }
                file.write(json.dumps(row) + "\n")
        ours = _measured(_READ, str(path))
        held = _measured(_HOLD, str(path), directory)
    told = (
        f"all in {ours['all']:.1f} s and {ours['kib'] >> 10} MiB; datasets holds the table in {held['kib'] >> 10} MiB"
    )
    ratios = {"reading memory": ours["kib"] / held["kib"], "seconds to the first task": ours["first"]}
    return ratios, {f"{ours['count']} rows": told}


def _measured(program: str, *arguments: str) -> dict[str, Any]:
    argv, offline = [sys.executable, "-c", program, *arguments], {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=offline)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _add(found: Found, ratios: dict[str, float], detail: dict[str, object]) -> None:
    ratios |= found[0]
    detail |= found[1]


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU seconds of the suite")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--json", action="store_true", help="print one line of JSON as well")
    options = parser.parse_args()
    ratios: dict[str, float] = {}
    detail: dict[str, object] = {}
    if options.rows:
        _add(reading(options.rows), ratios, detail)
    if options.commits:
        _add(hiding(options.commits), ratios, detail)
    if options.runs:
        _add(asyncio.run(scoring(options.runs, options.seconds)), ratios, detail)
    report("swe_scoring", ratios, {name: GOALS[name] for name in ratios}, detail, as_json=options.json)


if __name__ == "__main__":
    main()
