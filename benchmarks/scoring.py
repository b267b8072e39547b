"""Measures scoring of mathematics: on the host in worker processes, and inside live sandboxes.

Host: answers per second of the worker pool, divided by cores times answers per second of one process that runs plain
math-verify on the same pairs, alternately; how late the event loop is meanwhile; what one hung answer costs.
Sandbox: seconds from the call of the rubric to the score and CPU of the host per score, with bubblewrap and, where
there is one, in a podman container whose agent is root (whose answer is verified on the host).

Run: uv run python benchmarks/scoring.py [--json] [--answers 10000] [--scores 8]
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import verifiers.v1 as vf
from mathverdict.finals import finals_of_file, reference_value
from opencode_rubrics import RemoteHybridMathConfig, RemoteHybridMathRubric
from opencode_rubrics.math.scorer_bundle import ensure_bundle
from opencode_rubrics.math.worker_pool import WorkerPool, usable_cores
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined
from rollout_sandbox.podman import PodmanConfig, provision_podman

from benchmarks._containers import containers
from benchmarks._measure import Cost, adopt_orphans, machine, measured, report
from tests.support.podman import base_image

GOALS = {"host_throughput": 0.9, "loop_lag": 1.0, "hang_cost": 1.0, "neighbours": 1.0}
"""host_throughput: at least. The others at most: lag p99 ÷ 20 ms; (hung answer - its deadline) ÷ 1 s; time of the
neighbours of a hung answer ÷ their time without it, in units of the share that its worker has."""

CORPUS = Path(__file__).parent.parent / "tests" / "mathverdict" / "data" / "pairs.jsonl"
HANG = r"(1/3)!+10^{-2000}\sqrt{2}"
HANG_DEADLINE = 3.0
ROUNDS = 4
PLAIN_SHARE = 5
"""The plain process gets one answer of this many: a ratio needs fewer, and it has one core."""

Pairs = Sequence[tuple[str, str]]


def mixed_answers(count: int) -> list[tuple[str, str]]:
    """`count` random pairs of reference and answer from the labelled corpus."""
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").split("\n") if line]
    found = []
    for row in rows:
        answers = finals_of_file(row["answer"]).answers
        if answers:
            found.append((reference_value(row["reference"]), answers[-1]))
    generator = random.Random(0)
    return [generator.choice(found) for _ in range(count)]


def plain_seconds(pairs: Pairs) -> float:
    """What one plain process takes."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(pair) + "\n" for pair in pairs)
        file.flush()
        program = Path(__file__).with_name("_plain_math_verify.py")
        done = subprocess.run([sys.executable, str(program), file.name], check=True, capture_output=True, text=True)
    return float(done.stdout)


async def pool_seconds(pool: WorkerPool, pairs: Pairs, lags: list[float]) -> float:
    """What the pool takes for all pairs at once; adds how late the event loop was to `lags` (s)."""
    started = time.perf_counter()
    scoring = asyncio.gather(*(pool.verify(reference, answer, "file", 10) for reference, answer in pairs))
    # The creation of the tasks is ours, not the pool's.
    await asyncio.sleep(0)
    while not scoring.done():
        before = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - before - 0.005)
    await scoring
    return time.perf_counter() - started


async def host_throughput(answers: int) -> tuple[dict[str, float], dict[str, object]]:
    """Throughput against plain math-verify, and the loop's lag."""
    pairs = mixed_answers(answers)
    size = answers // ROUNDS
    ours = plain = 0.0
    plain_count = 0
    lags: list[float] = []
    pool = WorkerPool(usable_cores())
    try:
        started = time.perf_counter()
        await asyncio.gather(*(pool.verify("x^2", r"x\cdot x", "file", 10) for _ in range(usable_cores())))
        start_seconds = time.perf_counter() - started
        for index in range(ROUNDS):
            part = pairs[index * size : (index + 1) * size]
            ours += await pool_seconds(pool, part, lags)
            few = part[::PLAIN_SHARE]
            plain += await asyncio.to_thread(plain_seconds, few)
            plain_count += len(few)
    finally:
        pool.close()
    rate, plain_rate = size * ROUNDS / ours, plain_count / plain
    lag = sorted(lags)[int(len(lags) * 0.99)]
    ratios = {"host_throughput": rate / (usable_cores() * plain_rate), "loop_lag": lag / 0.020}
    detail = {
        "answers": size * ROUNDS,
        "answers_per_second": round(rate),
        "plain_answers_per_second": round(plain_rate),
        "loop_lag_p99_ms": round(lag * 1000, 2),
        "loop_lag_median_ms": round(statistics.median(lags) * 1000, 3),
        "pool_start_seconds": round(start_seconds, 3),
    }
    return ratios, {"host": detail}


async def _hung_seconds(pool: WorkerPool) -> float:
    started = time.perf_counter()
    result = await pool.verify("5", HANG, "file", HANG_DEADLINE)
    assert result.reason == "timed_out"
    return time.perf_counter() - started


async def hang_cost(answers: int) -> tuple[dict[str, float], dict[str, object]]:
    """What a hung answer costs itself and its neighbours."""
    pairs = mixed_answers(answers)
    cores = usable_cores()
    workers = max(2, cores)
    pool = WorkerPool(workers)
    try:
        await pool_seconds(pool, pairs, [])
        rounds = []
        for _ in range(3):
            alone = await pool_seconds(pool, pairs, [])
            hung = asyncio.create_task(_hung_seconds(pool))
            await asyncio.sleep(0)
            rounds.append((alone, await pool_seconds(pool, pairs, []), await hung))
    finally:
        pool.close()
    # The quickest of each: whatever else this machine does only adds to them.
    alone, beside, cost = (min(values) for values in zip(*rounds, strict=True))
    # For as long as it hangs, one worker of all is missing.
    fair = alone + min(beside, cost) / workers
    ratios = {"hang_cost": max(0.0, cost - HANG_DEADLINE), "neighbours": beside / (fair * 1.1)}
    detail = {"deadline_seconds": HANG_DEADLINE, "hung_seconds": round(cost, 2), "workers": workers}
    return ratios, {"hang": {**detail, "alone_seconds": round(alone, 2), "beside_seconds": round(beside, 2)}}


class _Data(vf.TaskData):
    answer: str


def _trace(data: _Data) -> vf.Trace[Any, Any, Any]:
    task: vf.TraceTask[Any] = vf.TraceTask(type="Task", data=data, key="k", hash="h")
    return vf.Trace(task=task, agent=vf.AgentInfo(config=vf.AgentConfig()))


@asynccontextmanager
async def confined(rubric: RemoteHybridMathRubric) -> AsyncIterator[vf.Runtime]:
    binds = list(await rubric.shared_directories())
    async with provision_confined(LocalSandboxConfig(), binds, name=None, env={}) as box:
        yield box


async def in_sandbox(box_of: Any, rubric: RemoteHybridMathRubric, scores: int) -> dict[str, object]:
    """Median seconds and CPU seconds of this machine per score; an answer that needs symbolic algebra."""
    seconds: list[float] = []

    async def play(count: int) -> None:
        async with box_of() as box:
            await box.write("/app/answer.txt", b"(x-1)(x+1)\n")
            for _ in range(count):
                data = _Data(prompt="?", answer="x^2-1")
                trace = _trace(data)
                started = time.perf_counter()
                await rubric.score(data, trace, box)
                seconds.append(time.perf_counter() - started)
                assert trace.reward == 1.0

    with measured(Cost()):  # reaps what earlier measurements left
        await play(1)
    seconds.clear()
    empty, full = Cost(), Cost()
    with measured(empty):
        await play(0)
    with measured(full):
        await play(scores)
    return {
        "score_seconds_median": round(statistics.median(seconds), 3),
        "cpu_seconds_per_score": round((full.cpu - empty.cpu) / scores, 3),
    }


async def sandboxes(scores: int, image: str | None) -> dict[str, object]:
    """In-sandbox scoring of each kind that this machine has."""
    found: dict[str, object] = {}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        await ensure_bundle(Path(cache))
        found["bundle_first_seconds"] = round(time.perf_counter() - started, 2)
        started = time.perf_counter()
        await ensure_bundle(Path(cache))
        found["bundle_again_seconds"] = round(time.perf_counter() - started, 4)
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig())
    try:
        if shutil.which("bwrap"):
            found["bubblewrap"] = await in_sandbox(lambda: confined(rubric), rubric, scores)
        if image is not None:
            config = PodmanConfig(image=image)
            found["podman_root_agent"] = await in_sandbox(lambda: provision_podman(config), rubric, scores)
    finally:
        await rubric.teardown()
    return found


async def run(options: argparse.Namespace, image: str | None) -> tuple[dict[str, float], dict[str, object]]:
    """All measurements, one after the other."""
    ratios, detail = await host_throughput(options.answers)
    hang_ratios, hang_detail = await hang_cost(max(500, options.answers // 10))
    return {**ratios, **hang_ratios}, {**detail, **hang_detail, "sandbox": await sandboxes(options.scores, image)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--answers", type=int, default=10_000, help="scored on the host (default: %(default)s)")
    parser.add_argument("--scores", type=int, default=8, help="per kind of sandbox (default: %(default)s)")
    options = parser.parse_args()
    adopt_orphans()
    with containers(base_image) as image:
        ratios, measured_detail = asyncio.run(run(options, image))
    detail = {**measured_detail, "machine": machine()}
    report("scoring", ratios, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
