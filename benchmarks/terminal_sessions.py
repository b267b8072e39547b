"""Latency of a step of the Terminal-Bench 2 environment, against the sandbox's own `run`.

`exec true` through `Tbench2Environment` and `run(["bash", "-c", "true"])` of a sandbox of the same kind alternate, and
their medians are compared. The baseline is on the event loop already; the step goes through the environment's thread,
its state and its log.

Run: uv run --group openenv python benchmarks/terminal_sessions.py [--json] [--steps 300]
"""

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_openenv.tbench2 import Tbench2Action, Tbench2Environment
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined

from benchmarks._measure import machine, percentile, report

GOALS = {"exec_latency": 1.3}

_WARM_UP = 20
_TOML = "[verifier]\ntimeout_sec = 60\n"


def make_task(folder: Path) -> None:
    """A task directory in which nothing is to be done."""
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text(_TOML)
    (folder / "instruction.md").write_text("Nothing.")
    (folder / "tests" / "test.sh").write_text("#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n")
    (folder / "tests" / "test.sh").chmod(0o755)


async def measure(tasks: Path, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of each run of the sandbox, and of each step of the environment."""
    environment = Tbench2Environment(tasks_dir=tasks, output_dir=tasks / "logs")
    await environment.reset_async(task_id="nothing")
    action = Tbench2Action(command="true")
    runs: list[float] = []
    taken: list[float] = []
    try:
        async with provision_confined(LocalSandboxConfig()) as box:
            for _ in range(_WARM_UP + steps):
                started = time.perf_counter()
                await box.run(["bash", "-c", "true"], {})
                between = time.perf_counter()
                await environment.step_async(action)
                taken.append(time.perf_counter() - between)
                runs.append(between - started)
    finally:
        await asyncio.to_thread(environment.close)
    return runs[_WARM_UP:], taken[_WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--steps", type=int, default=300, help="steps of each kind (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="terminal-sessions-") as directory:
        make_task(Path(directory, "nothing"))
        runs, steps = asyncio.run(measure(Path(directory), options.steps))
    run, step = statistics.median(runs), statistics.median(steps)
    detail = {
        "run": f"{run * 1e3:.2f} ms median, {percentile(runs, 0.95) * 1e3:.2f} ms p95",
        "exec": f"{step * 1e3:.2f} ms median, {percentile(steps, 0.95) * 1e3:.2f} ms p95",
        "steps": options.steps,
        **machine(),
    }
    report("terminal_sessions", {"exec_latency": step / run}, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
