"""What it costs to filter a million rows by difficulty, next to `datasets.Dataset.filter` with a Python lambda.

One Parquet file (question, answer, difficulty) is made in a temporary folder, which is removed. Each side works in a
process of its own, several rounds: `ours` decides which rows are kept, `first` goes on to the first task,
`lambda` is the library on the same rows, already converted to its own format. Imports are not counted: seconds
start after them, and the memory compared is the peak above what they take (`peak_mb` is the whole process).

    uv run python benchmarks/_dataset_filter.py [--rows 1000000] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median

GOALS = {"filter_time": 0.05, "filter_peak_memory": 0.5, "first_task_seconds": 2.0}
ROUNDS = 3
LOW, HIGH = 0.2, 0.8
FILE, CACHE = "rows.parquet", "cache"

Figures = dict[str, float]


def main() -> None:
    """Make the rows, time all sides, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=tuple(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.folder)))
        return
    sides = _measure(options.rows)
    ours, first, library = sides["ours"], sides["first"], sides["lambda"]
    ratios = {
        "filter_time": ours["seconds"] / library["seconds"],
        "filter_peak_memory": ours["growth_mb"] / library["growth_mb"],
        "first_task_seconds": first["seconds"],
    }
    for name, value in ratios.items():
        print(f"  {name:24} {value:8.4f}   goal {GOALS[name]:g}")
    for name, figures in sides.items():
        print(f"  {name}: " + ", ".join(f"{key} {value:,.3f}" for key, value in figures.items()))
    packages = {name: version(name) for name in ("opencode-env", "datasets", "pyarrow")}
    print(f"  {options.rows:,} rows, python {sys.version.split()[0]}, {os.cpu_count()} cores, {packages}")
    if options.json:
        result = {"name": "dataset_filter", "ratios": ratios, "goals": GOALS, "detail": {**sides, **packages}}
        print(json.dumps(result))


def _measure(rows: int) -> dict[str, Figures]:
    with tempfile.TemporaryDirectory(prefix="filter-bench-") as name:
        folder = Path(name)
        run_side(__file__, "make", folder, {"BENCH_ROWS": str(rows)})
        runs = {side: [run_side(__file__, side, folder) for _ in range(ROUNDS)] for side in ("ours", "first", "lambda")}
    kept = {run["kept"] for side in ("ours", "lambda") for run in runs[side]}
    assert len(kept) == 1, f"the sides disagree about what is kept: {kept}"
    return {side: {key: median(run[key] for run in found) for key in found[0]} for side, found in runs.items()}


def run_side(script: str, side: str, folder: Path, env: dict[str, str] | None = None) -> Figures:
    """What one side of a script says of itself, run in a process of its own."""
    command = [sys.executable, script, "--side", side, "--folder", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _make(folder: Path) -> Figures:
    """Write the rows, and the library's own copy of them."""
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = int(os.environ["BENCH_ROWS"])
    table = {
        "question": [f"What is the sum of the digits of {n * n}? Explain every step in words." for n in range(rows)],
        "answer": [str(n) for n in range(rows)],
        "avg_reward": [n * 7919 % 9 / 8 for n in range(rows)],
    }
    pq.write_table(pa.table(table), folder / FILE)
    datasets.disable_progress_bars()
    datasets.Dataset.from_parquet(str(folder / FILE), cache_dir=str(folder / CACHE))
    return {}


def _ours(folder: Path) -> Figures:
    from opencode_env.taskset.difficulty_filter import FilterReport, RewardRange
    from opencode_env.taskset.sources import ParquetFile

    before, start = memory("VmRSS"), time.perf_counter()
    file = ParquetFile(str(folder / FILE))
    wanted = RewardRange("avg_reward", LOW, HIGH, keep_unrated=False)
    mask = wanted.mask(file.ratings("avg_reward"), file.origin, FilterReport())
    return _figures(before, start, mask.true_count)


def _first(folder: Path) -> Figures:
    from opencode_env.taskset import OpenCodeTaskset, OpenCodeTasksetConfig

    # A taskset imports this when it is read.
    import_module("opencode_env.taskset.sources")
    before, start = memory("VmRSS"), time.perf_counter()
    config = OpenCodeTasksetConfig(
        dataset=str(folder / FILE), difficulty_key="avg_reward", min_avg_reward=LOW, max_avg_reward=HIGH
    )
    next(iter(OpenCodeTaskset(config)))
    return _figures(before, start, 1)


def _lambda(folder: Path) -> Figures:
    import datasets

    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_parquet(str(folder / FILE), cache_dir=str(folder / CACHE))
    before, start = memory("VmRSS"), time.perf_counter()
    kept = rows.filter(lambda row: LOW <= row["avg_reward"] <= HIGH, load_from_cache_file=False)
    return _figures(before, start, len(kept))


def _figures(before: float, start: float, kept: int) -> Figures:
    seconds = time.perf_counter() - start
    peak = memory("VmHWM")
    return {"seconds": seconds, "peak_mb": peak, "growth_mb": peak - before, "kept": kept}


def memory(field: str) -> float:
    """A memory figure of this process in MB. Unlike `ru_maxrss`, it starts anew with the program."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1000


SIDES: dict[str, Callable[[Path], Figures]] = {"make": _make, "ours": _ours, "first": _first, "lambda": _lambda}

if __name__ == "__main__":
    main()
