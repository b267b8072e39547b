"""Rollouts on a Ray cluster of this machine ÷ the same in one process, with the real OpenCode and a scripted model.

  cpu              CPU of all processes for `--rollouts` rollouts on two nodes ÷ the same locally: evaluation, workers,
                   sandboxes and agents, and Ray's own. Starts of nodes and workers, and the model, are not counted;
                   before, each has played as many as run at once
  cpu_but_ray      the same without Ray's own processes, which cost by the second: more where the machine is busy
  driver           CPU of the driver's process for one rollout ÷ of the evaluation process locally; what each takes in
                   the same time with nothing to do is taken off, and told
  record           seconds from asking a worker for an episode of 2 MB until it is packed there, moved and validated
                   here ÷ seconds until the same bytes have moved; each the least of twenty
  unaccounted      rollouts that were not played whole

In the end `--waiting` rollouts wait at their model on four nodes, in a confined sandbox each, of which the page
`docs/how-to/cluster.md` calculates more: CPU and memory of driver and workers meanwhile. `--whole`: 40 rollouts, and
256 that wait (4 GB). SIGTERM and Ctrl-C end all nodes and rollouts.

Run: uv run python benchmarks/cluster.py [--json] [--rollouts 12] [--waiting 16] [--whole]
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import ray
from opencode_env.agents.opencode.builds import DEFAULT_VERSION
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from benchmarks._child import ask, cpu_seconds
from benchmarks._hosted import PROMPT
from benchmarks._measure import machine, report
from benchmarks._watched_worker import program
from benchmarks.rollout_overhead import STEPS
from examples.cluster.nodes import own_address, until_ended
from tests.support.held_model import HeldModel

GOALS = {"cpu": 1.05, "driver": 0.1, "unaccounted": 0.0}
AT_ONCE = 4
NODES, MANY_NODES = 2, 4
RECORD_BYTES = 2_000_000
IDLE_SECONDS = 10
WATCHED_SECONDS = 20.0
WORKER = "ray::RayWorker"
BODY = {"model": "scripted-model", "stream": True, "messages": [{"role": "user", "content": "Wait."}]}


class Driver:
    """The driver's process, and all that runs for it."""

    def __init__(self, child: asyncio.subprocess.Process, pid: int) -> None:
        self._child = child
        self.pid = pid

    async def ask(self, what: str) -> dict[str, Any]:
        """Its answer to an order."""
        return await ask(self._child, what)

    def cpu(self) -> float:
        """CPU-seconds of it and all that it or they started."""
        return sum(used(pid, ended=True) for pid in descendants(self.pid))

    def ray(self) -> float:
        """CPU-seconds of Ray's own processes, which are neither workers nor what those started."""
        workers = {pid for worker in self.workers() for pid in descendants(worker)}
        return sum(used(pid) for pid in descendants(self.pid) if pid not in {self.pid, *workers})

    def workers(self) -> list[int]:
        """The processes of its workers."""
        return [pid for pid in descendants(self.pid) if read(pid, "cmdline").startswith(WORKER)]


def read(pid: int, name: str) -> str:
    """A file of a process, or nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def used(pid: int, *, ended: bool = False) -> float:
    """CPU-seconds of a process; none of one that has just gone."""
    try:
        return cpu_seconds(pid, ended=ended)
    except OSError:
        return 0.0


def descendants(root: int) -> list[int]:
    """A process, and all that descend from it."""
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            found += map(int, read(pid, f"task/{task.name}/children").split())
    return found


def megabytes(pid: int) -> float:
    """What a process takes, shared pages by its share."""
    lines = read(pid, "smaps_rollup").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


@asynccontextmanager
async def driver(fields: Mapping[str, Any], url: str, nodes: int) -> AsyncIterator[Driver]:
    """A driver of the environment that these fields configure; without nodes it plays itself."""
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "config.json"
        config.write_text(json.dumps(fields))
        options = ["--config", str(config), "--url", url, "--nodes", str(nodes)]
        async with program("_cluster_driver.py", *options) as (child, said):
            yield Driver(child, int(said))
            assert child.stdin is not None
            child.stdin.close()
            await child.wait()


async def rounds(nodes: int, url: str, rollouts: int, scratch: Path) -> dict[str, Any]:
    """Rollouts of OpenCode, on so many nodes or here."""
    rows = scratch / "rows.jsonl"
    rows.write_text(json.dumps({"id": "t", "question": PROMPT, "answer": "done"}) + "\n")
    fields: dict[str, Any] = {"id": "opencode-env", "taskset": {"id": "opencode-env", "dataset": str(rows)}}
    fields |= {"cluster": {"per_worker": AT_ONCE // NODES}} if nodes else {}
    async with driver(fields, url, nodes) as driving:
        await driving.ask(f"play {AT_ONCE} {AT_ONCE}")
        idle = (await driving.ask(f"idle {IDLE_SECONDS}"))["share"]
        before, ray_before = driving.cpu(), driving.ray() if nodes else 0.0
        seen = await driving.ask(f"play {rollouts} {AT_ONCE}")
        seen |= {"cpu": driving.cpu() - before, "idle": idle, "own": seen["own"] - idle * seen["wall"]}
        seen["ray"] = driving.ray() - ray_before if nodes else 0.0
        seen |= {"record": await driving.ask(f"record {RECORD_BYTES}")} if nodes else {}
    print(f"  {rollouts} rollouts on {nodes or 'no'} nodes: {seen['cpu']:.1f} CPU-s, {seen['wall']:.0f} s", flush=True)
    return seen


async def waiting(host: str, rollouts: int, scratch: Path) -> dict[str, Any]:
    """What driver and workers take while rollouts wait at their model, and for all of it."""
    shown = scratch / "simulated"
    shown.mkdir()
    (shown / "program.py").write_text(Path(__file__).with_name("_simulated_program.py").read_text())
    (shown / "bodies.json").write_text(json.dumps([BODY]))
    agent = {"harness": {"id": "program-agent", "directory": str(shown)}, "runtime": {"type": "subprocess"}}
    fields = {"id": "program-agent", "taskset": {"id": "simulated-agent"}, "agent": agent}
    fields["cluster"] = {"per_worker": -(-rollouts // MANY_NODES)}
    async with (
        HeldModel(ScriptPolicy.of(Reply(text="done")), host=host, record=False) as model,
        driver(fields, model.base_url, MANY_NODES) as driving,
    ):
        playing = asyncio.ensure_future(driving.ask(f"play {rollouts} {rollouts}"))
        while model.active < rollouts and not playing.done():
            await asyncio.sleep(0.2)
        workers = driving.workers()
        pids = [driving.pid, *workers]
        before = [used(pid) for pid in pids]
        await asyncio.sleep(WATCHED_SECONDS)
        shares = [100 * (used(pid) - cpu) / WATCHED_SECONDS for pid, cpu in zip(pids, before, strict=True)]
        sizes = [megabytes(pid) for pid in pids]
        descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
        model.released.set()
        seen = await playing
        return seen | {
            "workers": len(workers),
            "driver, waiting": f"{shares[0]:.1f} % of a core, {sizes[0]:.0f} MB, {descriptors[0]} descriptors",
            "a worker, waiting": f"{sum(shares[1:]) / len(workers):.1f} % of a core, "
            f"{sum(sizes[1:]) / len(workers):.0f} MB, {max(descriptors[1:])} descriptors",
        }


async def measure(options: argparse.Namespace) -> tuple[dict[str, float], dict[str, object]]:
    """All ratios, and what they are made of."""
    host, count = own_address(), options.rollouts
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        async with ScriptedModel(ScriptPolicy.of(*(Reply.model_validate(step) for step in STEPS)), host=host) as model:
            local = await rounds(0, model.base_url, count, scratch)
            cluster = await rounds(NODES, model.base_url, count, scratch)
        many = await waiting(host, options.waiting, scratch)
    moved = cluster["record"]
    played = [turns == len(STEPS) for seen in (local, cluster) for turns in seen["turns"]] + [
        t == 1 for t in many["turns"]
    ]
    ratios = {
        "cpu": cluster["cpu"] / local["cpu"],
        "cpu_but_ray": (cluster["cpu"] - cluster["ray"]) / local["cpu"],
        "driver": cluster["own"] / local["own"],
        "record": moved["packed"] / moved["copied"],
        "unaccounted": float(2 * count + options.waiting - sum(played)),
    }
    each = {"local": local, f"{NODES} nodes": cluster}
    shown: dict[str, object] = {
        name: f"{seen['cpu'] / count:.3f} CPU-s a rollout, {seen['own'] / count:.4f} of them the evaluation process's "
        f"beside the {100 * seen['idle']:.2f} % of a core that it takes with nothing to do; "
        f"{seen['wall']:.0f} s for {count}, loop lag p99 {1e3 * seen['lag']:.1f} ms"
        for name, seen in each.items()
    }
    shown["record"] = f"{moved['bytes']:,} bytes: {1e3 * moved['packed']:.1f} ms, moved {1e3 * moved['copied']:.1f} ms"
    title = f"{options.waiting} waiting on {MANY_NODES} nodes"
    shown |= {title: f"{many['workers']} workers", **{name: said for name, said in many.items() if " " in name}}
    return ratios, {**shown, **machine(), "ray": ray.__version__, "opencode": DEFAULT_VERSION}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rollouts", type=int, default=12, help="of OpenCode, here and there (default: %(default)s)")
    parser.add_argument("--waiting", type=int, default=16, help="rollouts that wait (default: %(default)s)")
    parser.add_argument("--whole", action="store_true", help="40 rollouts, and 256 that wait, in 4 GB of memory")
    options = parser.parse_args()
    if options.whole:
        options.rollouts, options.waiting = 40, 256
    try:
        ratios, shown = asyncio.run(until_ended(measure(options)))
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGINT) from None
    report("cluster", ratios, GOALS, shown, as_json=options.json)


if __name__ == "__main__":
    main()
