"""Datasets and difficulty at size: filtering a million rows, and reading a gigabyte of traces.

  filter_time, filter_peak_memory   our filter ÷ `datasets.Dataset.filter` with a Python lambda, same million rows
  first_task_seconds                seconds to the first task of the filtered million
  rate_speed_text, …_tokens         `opencode-difficulty rate` ÷ plain `json.loads`, MB per CPU-second, same lines

The halves are `_dataset_filter.py` and `_difficulty_rate.py`, which also run alone.
Run: uv run python benchmarks/task_datasets.py [--json] [--rows 1000000] [--megabytes 1000]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run both halves and put their figures together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to filter (default: %(default)s)")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the traces (default: %(default)s)")
    options = parser.parse_args()
    halves = [_half("_dataset_filter.py", "--rows", options.rows)]
    halves.append(_half("_difficulty_rate.py", "--megabytes", options.megabytes))
    if options.json:
        merged = {key: {**halves[0][key], **halves[1][key]} for key in ("ratios", "goals", "detail")}
        print(json.dumps({"name": "task_datasets", **merged}))


def _half(script: str, option: str, size: int) -> dict[str, dict[str, float]]:
    command = [sys.executable, str(HERE / script), option, str(size), "--json"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip().splitlines()
    print("\n".join(output[:-1]), flush=True)
    result: dict[str, dict[str, float]] = json.loads(output[-1])
    return result


if __name__ == "__main__":
    main()
