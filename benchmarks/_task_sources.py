"""How soon a large source gives its first task, and what reading all of it takes.

A Parquet table of programming problems with their tests, as `opencode-cp` reads it, and a folder of task directories,
made in a temporary folder, which is removed. Each side works in a process of its own; imports are not counted.
`table` and `folders` read every task and keep none; `held` is the same table in the memory of `datasets`.

    uv run python benchmarks/_task_sources.py [--rows 50000] [--folders 10000] [--json]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._dataset_filter import Figures, memory, run_side

GOALS = {"table_first_seconds": 2.0, "folders_first_seconds": 2.0, "table_peak_memory": 0.5}
_MANIFEST = '[metadata]\nname = "t"\n[verifier]\ntimeout_sec = 60\n[agent]\ntimeout_sec = 600\n'


def main() -> None:
    """Make the sources, time all sides, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--folders", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=tuple(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="sources-bench-") as name:
        sizes = {"BENCH_ROWS": str(options.rows), "BENCH_FOLDERS": str(options.folders)}
        run_side(__file__, "make", Path(name), sizes)
        sides = {side: run_side(__file__, side, Path(name)) for side in ("held", "table", "folders")}
    ratios = {
        "table_first_seconds": sides["table"]["first_seconds"],
        "folders_first_seconds": sides["folders"]["first_seconds"],
        "table_peak_memory": sides["table"]["growth_mb"] / sides["held"]["growth_mb"],
    }
    for name, value in ratios.items():
        print(f"  {name:24} {value:8.4f}   goal {GOALS[name]:g}")
    for name, figures in sides.items():
        print(f"  {name}: " + ", ".join(f"{key} {value:,.3f}" for key, value in figures.items()))
    if options.json:
        print(json.dumps({"name": "task_sources", "ratios": ratios, "goals": GOALS, "detail": sides}))


def _make(folder: Path) -> Figures:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = int(os.environ["BENCH_ROWS"])
    with pq.ParquetWriter(folder / "rows.parquet", _schema()) as writer:
        for start in range(0, rows, 1000):
            batch = [_row(number) for number in range(start, min(rows, start + 1000))]
            writer.write_table(pa.Table.from_pylist(batch, _schema()))
    for number in range(int(os.environ["BENCH_FOLDERS"])):
        task = folder / "tasks" / f"task-{number:05}"
        (task / "tests").mkdir(parents=True)
        (task / "task.toml").write_text(_MANIFEST)
        (task / "instruction.md").write_text(f"Count to {number}.")
        (task / "tests" / "test.sh").write_text(f"echo {number} > /logs/verifier/reward.txt\n" * 20)
    return {}


def _schema() -> "object":
    import pyarrow as pa

    return pa.schema([("question", pa.string()), ("info", pa.string()), ("rating", pa.float64())])


def _row(number: int) -> dict[str, object]:
    inputs = [f"{number} {n}\n" + "7 " * 20 for n in range(20)]
    tests = {"inputs": inputs, "outputs": [str(number + n) for n in range(20)]}
    return {
        "question": f"Problem {number}: add the numbers. " * 10,
        "info": json.dumps({"source": "made here", "tests": json.dumps(tests)}),
        "rating": number % 9 / 8,
    }


def _table(folder: Path) -> Figures:
    return _read(dataset=str(folder / "rows.parquet"), tests_key="info", difficulty_key="rating")


def _folders(folder: Path) -> Figures:
    return _read(dataset=str(folder / "tasks"))


def _read(**options: str) -> Figures:
    from opencode_env.taskset import OpenCodeTaskset, OpenCodeTasksetConfig

    import_module("opencode_env.taskset.sources")
    before, start = memory("VmRSS"), time.perf_counter()
    tasks = iter(OpenCodeTaskset(OpenCodeTasksetConfig.model_validate(options)))
    next(tasks)
    first = time.perf_counter() - start
    count = 1 + sum(1 for _ in tasks)
    seconds = time.perf_counter() - start
    return {"first_seconds": first, "seconds": seconds, "growth_mb": memory("VmHWM") - before, "tasks": count}


def _held(folder: Path) -> Figures:
    import datasets

    datasets.disable_progress_bars()
    before = memory("VmRSS")
    rows = datasets.Dataset.from_parquet(
        str(folder / "rows.parquet"), cache_dir=str(folder / "cache"), keep_in_memory=True
    )
    return {"growth_mb": memory("VmHWM") - before, "tasks": len(rows)}


SIDES: dict[str, Callable[[Path], Figures]] = {"make": _make, "held": _held, "table": _table, "folders": _folders}

if __name__ == "__main__":
    main()
