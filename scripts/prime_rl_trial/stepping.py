"""Rollouts of ours in prime-rl's hands: a step that trains, sub traces, failures, groups that are too old."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from opencode_env.agents.opencode.config import BUILT_IN_TOOLS
from opencode_runs.trainable.samples import training_samples
from opencode_runs.turns.kept import kept_turns
from prime_rl.configs.rl import RLConfig
from prime_rl.orchestrator.algo.routing import scalar_advantage
from prime_rl.orchestrator.packing import BatchPacker
from prime_rl.orchestrator.types import TrainBatch
from rollout_sandbox.conformance.subject import until

from examples.cluster.nodes import cluster_nodes, cluster_variables, own_address
from scripts.prime_rl_trial.configurations import WORKERS, trial
from scripts.prime_rl_trial.counts import Counts, count
from scripts.prime_rl_trial.engine import FILL, Engine, save_tokenizer
from scripts.prime_rl_trial.learning import Learner, Served, learner, serving
from scripts.prime_rl_trial.report import Report

NODES = 2
"""Of the cluster, and its most workers."""
PLAIN = {"id": "plain", "question": "Count the letters of the word tree.", "answer": "4"}
FAULTY: list[dict[str, Any]] = [
    {"id": "refused", "question": "REFUSE: the engine does not take it.", "answer": "4"},
    {"id": "unprepared", "question": "Its setup fails.", "answer": "4", "setup": ["exit 3"]},
    {"id": "late", "question": "HANG: the engine says nothing.", "answer": "4"},
]


@dataclass
class Stage:
    """One run under way."""

    engine: Engine
    config: RLConfig
    served: Served
    learner: Learner
    outputs: Path

    @property
    def sequences(self) -> set[tuple[int, ...]]:
        """What the engine saw and sampled, call by call."""
        return {tuple(sequence) for sequence in self.engine.sequences}


@asynccontextmanager
async def stage(
    name: str,
    work: Path,
    rows: list[dict[str, Any]] | Path,
    keep: Path | None = None,
    cluster: Mapping[str, Any] | None = None,
    host: str = "127.0.0.1",
    **agent: Any,
) -> AsyncIterator[Stage]:
    """Engine, environment server and learner for `configs/rl/NAME.toml`, over these rows or kept turns."""
    save_tokenizer(work / "tokenizer")
    engine = Engine(work / "tokenizer")
    if isinstance(rows, Path):
        dataset = rows
    else:
        dataset = work / "rows.jsonl"
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with engine.serving(host) as url:
        config = trial(name, engine.directory, url, port, dataset, keep, cluster, **agent)
        async with serving(config, work / "configs") as served, learner(config, work / "run") as learning:
            yield Stage(engine, config, served, learning, work / "run")


async def one_step(report: Report, work: Path) -> None:
    """A batch from `configs/rl/opencode.toml`: several workers, exact samples, advantages, micro batches."""
    async with stage("opencode", work, [PLAIN]) as now:
        batch = await _batch(now)
        _served_by_several(report, now)
        _counted(report, now, {"agent": 8})
        report.holds("a step's batch", len(batch.samples) == 8, f"{len(batch.samples)} samples of 8 rollouts")
        _packed(report, now, batch)
    report.holds(
        "its agents have ended with the run", now.served.agents() == 0, f"{len(now.served.seen)} programs seen"
    )


async def cluster(report: Report, work: Path) -> None:
    """A batch from `configs/rl/opencode.toml` with its source on a Ray cluster: two nodes, one set of workers."""
    variables = cluster_variables()
    os.environ |= variables
    async with cluster_nodes(NODES, 2, variables) as address:
        options = {"type": "ray", "address": address, "per_worker": 2, "max_workers": NODES}
        async with stage("opencode", work, [PLAIN], cluster=options, host=own_address()) as now:
            batch = await _batch(now)
            workers = {one.pid for one in _below(psutil.Process()) if _command(one).startswith("ray::RayWorker")}
            said = f"{len(workers)} workers for {WORKERS} processes of the server"
            report.holds("one set of workers for a source", len(workers) == NODES, said)
            traces = [trace for episode in now.learner.episodes for trace in episode.traces]
            places = Counter(trace.info["agent"]["node"] for trace in traces)
            report.holds("rollouts were played on all nodes", len(places) == NODES, dict(places))
            _counted(report, now, {"agent": 8})
            report.holds("a step's batch", len(batch.samples) == 8, f"{len(batch.samples)} samples of 8 rollouts")
            _packed(report, now, batch)
        await until(lambda: not any("opencode" in _command(one) for one in _below(psutil.Process())))
        report.holds("its agents have ended with the run", True)


def _below(process: psutil.Process) -> list[psutil.Process]:
    found: list[psutil.Process] = process.children(recursive=True)
    return found


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


async def recursion(report: Report, work: Path) -> None:
    """A batch from `configs/rl/rlm.toml`: main and sub traces, both trained."""
    async with stage("rlm", work, [PLAIN]) as now:
        batch = await _batch(now)
        _counted(report, now, {"agent": 4, "sub": 4})
        traces = [trace for episode in now.learner.episodes[:4] for trace in episode.traces]
        rewards = {trace.reward for trace in traces}
        report.holds("a batch counts traces: four rollouts fill one of eight", len(traces) == 8, f"rewards {rewards}")
        _packed(report, now, batch)


async def sections(report: Report, work: Path) -> None:
    """Batches of compacted conversations: a sample for each section and each summary, as far as these are to train."""
    spare: dict[str, Any] = {"system_prompt": "You count.", "system_prompt_mode": "replace", "prompt_model": "policy"}
    spare["disabled_tools"] = [name for name in BUILT_IN_TOOLS if name != "bash"]
    window = {"disable_compaction": False, "context_window": FILL + 16_000, "window_reserve": 16_000}
    parts = {"all": {"section": 2, "summary": 1}, "sections": {"section": 2}, "last": {"section": 1}}
    for trains, kinds in parts.items():
        place = work / trains
        place.mkdir()
        harness = {"id": "opencode-env", **spare, **window, "compaction_trains": trains}
        rows = [{"id": "long", "question": "FILL, then count the letters of the word tree.", "answer": "4"}]
        async with stage("opencode", place, rows, harness=harness) as now:
            batch = await _batch(now)
            _counted(report, now, {"agent": 8})
            traces = [trace for episode in now.learner.episodes for trace in episode.traces]
            found = [Counter(str(sample.kind) for sample in training_samples(trace)) for trace in traces]
            report.holds(f"each rollout is its parts that train ({trains})", found == [kinds] * len(traces), found[0])
            each, taken = sum(kinds.values()), len(batch.samples)
            report.holds("a batch counts traces: eight rollouts", taken == 8 * each, f"{taken} samples")
            _packed(report, now, batch)


async def turns(report: Report, work: Path) -> None:
    """The turns that a run kept are the next one's dataset: a group from each, and no sampled token trains twice."""
    kept = work / "kept"
    async with stage("opencode", work / "trunks", [PLAIN], keep=kept) as trunks:
        await _batch(trunks)
        _counted(report, trunks, {"agent": 8})
    offered = {(turn.trace_id, turn.turn) for turn in kept_turns(kept) if turn.unrestorable is None}
    report.holds("both turns of each rollout are offered", len(offered) >= 16, f"{len(offered)} turns")
    async with stage("opencode", work / "branches", kept) as branches:
        while len(_branches(branches)) < len(offered):
            await _batch(branches)
        _counted(report, branches, {"agent": 4 * len(offered)})
        found = _branches(branches)
        sizes = Counter(map(len, found.values()))
        report.holds("a group from every kept turn", found.keys() == offered, f"groups by size: {dict(sizes)}")
        traces = [trace for group in found.values() for trace in group]
        same = sum(trace.info["branch"]["same_request"] for trace in traces)
        report.holds("each began with its turn's request", same == len(traces), f"{same} of {len(traces)}")
        own = Counter((len(training_samples(trace)[0].trains), trace.metrics["own_turns"]) for trace in traces)
        masked = all(trained == sampled for trained, sampled in own)
        report.holds("only what was sampled after the turn trains", masked and len(own) == 2, dict(own))


def _branches(now: Stage) -> dict[tuple[str, int], list[Any]]:
    """Its traces by the kept turn that they were continued from."""
    found: dict[tuple[str, int], list[Any]] = {}
    for episode in now.learner.episodes:
        for trace in episode.traces:
            origin = trace.info["branch"]
            found.setdefault((origin["trace_id"], origin["turn"]), []).append(trace)
    return found


async def faults(report: Report, work: Path) -> None:
    """What fails counts towards its group and never trains; so does what ran out of its time before any answer."""
    async with stage("opencode", work, FAULTY, timeout={"setup": 900, "rollout": 60, "scoring": 600}) as now:
        dispatcher = now.learner.dispatcher
        dispatcher.set_limit(12)
        await until(lambda: len(dispatcher.inflight) + dispatcher.out_q.qsize() >= 12)
        dispatcher.disable_train_scheduling()
        batches = [await now.learner.take() for _ in range(12)]
        outcomes: dict[str, Counter[str]] = {}
        for episode in now.learner.episodes:
            said = [_outcome(trace) for trace in episode.traces] or [error.type for error in episode.errors]
            outcomes.setdefault(str(episode.task.data.id), Counter()).update(said)
        named = {name: dict(found) for name, found in outcomes.items()}
        report.holds("no failed rollout trains", len(named) == 3 and not any(batches), named)
        report.holds("no group waits for more", not now.learner.sink.pending_groups)


async def stale(report: Report, work: Path) -> None:
    """A group past `max_off_policy_steps` is cancelled, in prime-rl and in our environment server."""
    async with stage("opencode", work, FAULTY[2:]) as now:
        await until(lambda: now.engine.hanging >= 4 and now.served.agents() >= 4)
        now.learner.dispatcher.disable_train_scheduling()
        now.learner.progress.step = now.config.orchestrator.max_off_policy_steps + 2
        await now.learner.dispatcher.on_version_pending(now.learner.progress.step)
        batch = await now.learner.take()
        (dropped,) = now.learner.cancelled
        report.holds("a stale group is dropped whole", batch is None and dropped.count == 4, dropped)
        await until(lambda: now.served.agents() == 0)
        report.holds("its agents have ended in the environment server", True)


async def _batch(now: Stage) -> TrainBatch:
    """The first batch."""
    while True:
        taking = asyncio.create_task(now.learner.take())
        while not taking.done():
            now.served.agents()
            await asyncio.wait([taking], timeout=0.5)
        if (batch := await taking) is not None:
            return batch


def _outcome(trace: Any) -> str:
    return str(trace.errors[-1].type if trace.errors else f"ok, {trace.stop_condition}, reward {trace.reward}")


def _served_by_several(report: Report, now: Stage) -> None:
    said = f"{len(now.served.busy)} of {WORKERS} workers ran agents"
    report.holds("rollouts ran in several workers", len(now.served.busy) == WORKERS, said)


def _counted(report: Report, now: Stage, least: dict[str, int]) -> None:
    """Samples by seat, both ways, and what `opencode-trainable` prints for the run that prime-rl wrote."""
    seats: dict[str, list[Any]] = {}
    for episode in now.learner.episodes:
        for trace in episode.traces:
            seats.setdefault(trace.agent.name, []).append(trace)
    counted = {seat: count(traces, now.sequences) for seat, traces in seats.items()}
    for seat, found in counted.items():
        sound = found.differences == found.unknown == 0 and found.traces >= least[seat]
        report.holds(f"samples of seat {seat}, theirs and ours", sound, found)
    printed = _printed(now.outputs)
    expected = Counts(differences=0)
    for found in counted.values():
        expected.samples += found.samples
        expected.tokens += found.tokens
        expected.trained += found.trained
    report.holds("opencode-trainable --check prints these counts", printed == _summary(expected), printed)


def _summary(counts: Counts) -> dict[str, int]:
    return {"samples": counts.samples, "prompt": counts.tokens - counts.trained, "trained": counts.trained}


def _printed(run: Path) -> dict[str, int]:
    argv = [sys.executable, "-m", "opencode_runs.trainable", str(run), "--check", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    summary = json.loads(done.stdout)["summary"]
    return {"samples": summary["samples"], "prompt": summary["prompt_tokens"], "trained": summary["trained_tokens"]}


def _packed(report: Report, now: Stage, batch: TrainBatch) -> None:
    """Advantages of the batch, and its micro batches."""
    run = now.config.orchestrator
    grid = BatchPacker(run).pack(batch.samples)
    packed = sum(sum(micro.loss_mask) for worker in grid for micro in worker)
    trained = sum(sum(sample.mask) for sample in batch.samples)
    longest = max((len(sample.token_ids) for sample in batch.samples), default=0)
    said = f"{packed} trained tokens in {sum(map(len, grid))} micro batches; longest sample {longest}"
    report.holds("nothing is cut off or lost in packing", packed == trained and longest <= run.seq_len, said)
    short = BatchPacker(run.model_copy(update={"seq_len": longest // 2})).pack(batch.samples)
    kept = sum(sum(micro.loss_mask) for worker in short for micro in worker)
    report.holds("with half of that as seq_len the rest is cut off without a word", kept < packed, f"{kept} trained")
    traces = [trace for episode in batch.cohort.vf_episodes for trace in episode.traces]
    advantages = Counter(round(scalar_advantage(trace) or 0.0, 3) for trace in traces)
    report.holds("advantages are rewards less the group's mean", any(advantages), dict(advantages))
