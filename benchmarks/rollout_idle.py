"""Host-side memory of a rollout that waits for its model.

Two crowds of rollouts, a small and a large one, wait at a model that does not answer; the environment's own process is
measured while they wait, and the difference is divided by the difference in number. The supervisor of each sandbox
(process 1) and bubblewrap are measured apart: proportional set size, so that pages they share count once; the
environment's process by its resident set, which does not depend on who shares it. OpenCode itself is not counted, the
messages of a rollout are a few kilobytes.

Run: uv run python benchmarks/rollout_idle.py [--json] [--small 2] [--large 12]
"""

import argparse
import asyncio
import gc
import logging
import statistics
import sys
from pathlib import Path

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import verifiers.v1 as vf
from opencode_env.agents.opencode.builds import DEFAULT_VERSION
from opencode_env.scripted_model import Fault, FaultKind, Reply, ScriptedModel, ScriptPolicy

from benchmarks._hosted import Hosted, hosted_env
from benchmarks._measure import machine, report

GOALS = {"idle_mb_per_rollout": 3.0}


async def crowd(hosted: Hosted, model: ScriptedModel, first: int, count: int) -> tuple[float, float]:
    """Let `count` rollouts wait at the model; MB of this process, and of each sandbox's own processes, meanwhile."""
    playing = asyncio.ensure_future(hosted.run(hosted.slots[first : first + count], count))
    while model.active < count:
        await asyncio.sleep(0.1)
        if playing.done():
            await playing
            raise SystemExit("the rollouts were over before all of them waited: raise --hold")
    await asyncio.sleep(1)
    gc.collect()
    memory = (_megabytes("self", "Rss:"), statistics.mean(_sandbox_overhead()))
    await playing
    return memory


def _megabytes(pid: str, field: str) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in smaps_rollup")


def _sandbox_overhead() -> list[float]:
    """MB of bubblewrap and the supervisor of each sandbox of this process."""
    boxes = [child for child in _children(Path("/proc/self")) if (child / "comm").read_text().strip() == "bwrap"]
    return [sum(_megabytes(process.name, "Pss:") for process in (box, *_children(box))) for box in boxes]


def _children(process: Path) -> list[Path]:
    pids = [pid for task in (process / "task").iterdir() for pid in (task / "children").read_text().split()]
    return [Path("/proc") / pid for pid in pids]


async def measure(small: int, large: int, hold: float) -> dict[str, float]:
    """MB per waiting rollout, after a crowd of the larger size warmed everything up."""
    reply = Reply(text="done", faults=(Fault(kind=FaultKind.DELAY, seconds=hold),))
    async with (
        ScriptedModel(ScriptPolicy.of(reply), record=False) as model,
        hosted_env(model.base_url, vf.SubprocessConfig(), small + 2 * large) as hosted,
    ):
        await crowd(hosted, model, 0, large)
        few, _ = await crowd(hosted, model, large, small)
        many, sandbox = await crowd(hosted, model, large + small, large)
    return {"process": (many - few) / (large - small), "sandbox": sandbox}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--small", type=int, default=2, help="rollouts in the small crowd (default: %(default)s)")
    parser.add_argument("--large", type=int, default=12, help="rollouts in the large crowd (default: %(default)s)")
    parser.add_argument("--hold", type=float, default=45.0, help="seconds the model is silent (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    memory = asyncio.run(measure(options.small, options.large, options.hold))
    ratios = {"idle_mb_per_rollout": memory["process"]}
    detail = {
        "environment process": f"{memory['process']:.2f} MB per waiting rollout",
        "sandbox's own processes": f"{memory['sandbox']:.2f} MB per rollout (bubblewrap and supervisor)",
        **machine(),
        "opencode": DEFAULT_VERSION,
    }
    report("rollout_idle", ratios, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
