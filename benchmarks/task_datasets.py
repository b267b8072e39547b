"""Datasets and difficulty at size: filtering a million rows, large sources of tasks, and reading a gigabyte of traces.

  filter_time, filter_peak_memory   our filter ÷ `datasets.Dataset.filter` with a Python lambda, same million rows
  first_task_seconds                seconds to the first task of the filtered million
  table_first_…, folders_first_…    seconds to the first task of 50,000 problems with tests, of 10,000 task directories
  table_peak_memory                 reading all those problems ÷ `datasets` holding the table
  rate_speed_text, …_tokens         `opencode-difficulty rate` ÷ plain `json.loads`, MB per CPU-second, same lines

The parts are `_dataset_filter.py`, `_task_sources.py` and `_difficulty_rate.py`, which also run alone.
Run: uv run python benchmarks/task_datasets.py [--json] [--rows 1000000] [--megabytes 1000]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run the parts and put their figures together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to filter (default: %(default)s)")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the traces (default: %(default)s)")
    options = parser.parse_args()
    parts = [_part("_dataset_filter.py", "--rows", str(options.rows)), _part("_task_sources.py")]
    parts.append(_part("_difficulty_rate.py", "--megabytes", str(options.megabytes)))
    if options.json:
        merged = {
            key: {name: value for part in parts for name, value in part[key].items()}
            for key in ("ratios", "goals", "detail")
        }
        print(json.dumps({"name": "task_datasets", **merged}))


def _part(script: str, *options: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, str(HERE / script), *options, "--json"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip().splitlines()
    print("\n".join(output[:-1]), flush=True)
    result: dict[str, dict[str, float]] = json.loads(output[-1])
    return result


if __name__ == "__main__":
    main()
