"""Rollouts without end in one environment worker: what it holds after the first ones is what it holds after the last.

Agents in confined sandboxes, with sub calls, behind verifiers' own environment server in a process of its own. Every
round plays each kind of row once, two at a time: sound ones, some that fail, some that are killed. The light program
plays a few rounds; `make test-whole` soaks real OpenCode for an hour.
"""

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.utils.loaders import load_taskset, resolve_env_config

from benchmarks._watched_worker import WatchedWorker, watched_worker
from tests.rlm.episodes import task
from tests.support.light_opencode import light_opencode_in_place
from tests.support.processes import is_below, parent_of
from tests.support.replies import bash, call, fault, faulty
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.shims import counted, write_shim
from tests.support.sizes import WHOLE, size
from tests.support.user_home import UserHome
from tests.support.waiting import PATIENCE_SECONDS, until

MINUTES = size(0, 60)
WARM_UP, LEAST = 2, 2
"""Rounds before anything is compared, and the least that are compared then, however long they take."""
MEGABYTES = 0.3
"""What the worker may grow for each rollout. A rollout that it kept would be more: its trace, sessions and parsed
requests are. Between two rounds the allocator alone makes a difference of some MB."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(60 * MINUTES) + 900), pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="done")
HANGS = faulty("hang")
End = tuple[str, int, int]
"""What becomes of a rollout, its sub calls that were answered, and those that failed."""
SCORED: End = ("scored", 0, 0)
CANCELLED: End = ("cancelled", 0, 0)
MARK = "sleep 59871"
ROWS: Mapping[str, tuple[End, Sequence[Reply]]] = {
    "sound": (SCORED, [bash("seq 2000"), bash("echo made > file"), DONE]),
    "recursive": (("scored", 3, 0), [call("llm_subcall", prompts=["one", "two"]), task("look around"), DONE]),
    "sub-fails": (("scored", 1, 1), [call("llm_subcall", prompts=["one", "broken"]), DONE]),
    "leaves-processes": (SCORED, [bash("for n in 1 2 3; do setsid sleep 600 >/dev/null 2>&1 & done"), DONE]),
    "cut": (SCORED, [bash("echo 1"), Reply(text="done", faults=fault("cut", attempts=1))]),
    "model-fails": (("ProviderError", 0, 0), [bash("echo 1"), faulty("status", status=401, body="no")]),
    "kills-itself": (SCORED, [bash("kill -9 $PPID"), DONE]),
    "killed": (("SandboxError", 0, 0), [bash(f"setsid {MARK} >/dev/null 2>&1 &"), HANGS]),
    "cancelled": (CANCELLED, [bash("echo 1"), HANGS]),
}
"""What becomes of each kind of row, and what its model says."""


class Plays:
    """Both models."""

    def __init__(self) -> None:
        self.hung: set[str] = set()
        """Rows whose model does not answer any more."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        if request.model == SUB_MODEL:
            return faulty("status", status=404, body="no") if "broken" in request.prompt else Reply(text="found")
        (name,) = [name for name in ROWS if f"row {name}:" in str(request.user_texts)]
        steps = ROWS[name][1]
        reply = steps[min(request.turn, len(steps) - 1)]
        if reply is HANGS:
            self.hung.add(name)
        return reply


@dataclass
class Soak:
    """A worker under load."""

    home: UserHome
    model: ScriptedModel
    plays: Plays
    worker: WatchedWorker
    tasks: Mapping[str, Mapping[str, Any]]
    there: Container[int]
    """The processes before the first rollout."""
    rollouts: int = 0
    sizes: list[tuple[int, float]] = field(default_factory=list)
    """Rollouts played, and the worker's memory (MB) after them, by round."""

    async def round(self) -> None:
        """Every kind of row once, until nothing of it is left."""
        places = asyncio.Semaphore(2)

        async def placed(name: str) -> End:
            async with places:
                return await self._play(name)

        ends = await asyncio.gather(*(placed(name) for name in ROWS))
        assert dict(zip(ROWS, ends, strict=True)) == {name: end for name, (end, _) in ROWS.items()}
        try:
            await until(lambda: not self.left())
        except TimeoutError:
            pytest.fail(f"left behind: {self.left()}")
        self.rollouts += len(ROWS)
        await self.worker.held()  # collects what can be
        self.sizes.append((self.rollouts, (await self.worker.watched())["resident"] / 1e6))

    async def _play(self, name: str) -> End:
        endpoint = EvalClientConfig(base_url=self.model.base_url, api_key_var="NO_SUCH_KEY")
        asked = self.worker.client.run(endpoint, MAIN_MODEL, SamplingConfig(), dict(self.tasks[name]))
        running = asyncio.create_task(asked)
        if HANGS not in ROWS[name][1]:
            return end_of(await running)
        await until(lambda: name in self.plays.hung)
        self.plays.hung.remove(name)
        if name == "killed":
            await until(lambda: MARK in self._commands().values())
            os.kill(self._sandbox_with(MARK), signal.SIGKILL)
            return end_of(await running)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return CANCELLED

    def _commands(self) -> dict[int, str]:
        return {pid: line.strip() for pid, line in self.home.processes().items()}

    def _sandbox_with(self, command: str) -> int:
        """The process that holds the sandbox in which a command runs."""
        there = self._commands()
        (inside,) = [pid for pid, line in there.items() if line == command]
        (outside,) = [pid for pid in there if parent_of(pid) == self.worker.pid and is_below(inside, pid)]
        return outside

    def left(self) -> list[str]:
        """What rollouts have left."""
        own = [f"process {pid}: {line}" for pid, line in self.home.processes().items() if pid not in self.there]
        groups = [path for path, *_ in os.walk("/sys/fs/cgroup") if f"-{self.worker.pid}-" in os.path.basename(path)]
        files = [str(path) for path in (*self.home.sandboxes(), *self.home.temporary.iterdir())]
        return own + groups + files

    def growth(self) -> float:
        """MB for each rollout: the median over all pairs of rounds, which no single round can move."""
        pairs = combinations(self.sizes, 2)
        return statistics.median((later[1] - before[1]) / (later[0] - before[0]) for before, later in pairs)


def end_of(episode: WireEpisode) -> End:
    """What became of a rollout."""
    main = episode.traces[0]
    scored = any(reward is not None for reward in main.rewards.values())
    assert scored == (main.last_error is None), episode.errors
    answered, failed = (int(main.metrics[f"sub_llm_{what}"] or 0) for what in ("turns", "errors"))
    return main.last_error.type if main.last_error else "scored", answered, failed


@asynccontextmanager
async def soaking(home: UserHome) -> AsyncIterator[Soak]:
    """A worker of the recursive environment over the rows."""
    rows = [{"id": name, "question": f"row {name}: do what the script says.", "answer": "done"} for name in ROWS]
    path = write_rows(home.root / "rows.jsonl", rows)
    fields = {"taskset": {"id": "opencode-rlm", "dataset": str(path)}, "sub_model": SUB_MODEL}
    taskset = load_taskset(resolve_env_config(fields).taskset)
    tasks = {str(one.data.id): one.data.model_dump(mode="json") for one in taskset}
    plays, python = Plays(), home.root / "python"
    write_shim(python, [sys.executable])
    async with (
        ScriptedModel(plays, record=False) as model,
        watched_worker(fields, home.root, home.environment(), str(python)) as worker,
    ):
        yield Soak(home, model, plays, worker, tasks, set(home.processes()))


async def test_a_worker_holds_no_more_after_many_rollouts_than_after_the_first(tmp_path: Path) -> None:
    end = time.monotonic() + 60 * MINUTES
    with nullcontext() if WHOLE else light_opencode_in_place(), counted(tmp_path):
        await soak_until(end, UserHome(tmp_path))


async def soak_until(end: float, home: UserHome) -> None:
    async with soaking(home) as soak:
        for _ in range(WARM_UP):
            await soak.round()
        before = await soak.worker.held()
        soak.sizes = soak.sizes[-1:]
        while time.monotonic() < end or len(soak.sizes) <= LEAST:
            await soak.round()
        assert await soak.worker.more_than(before, PATIENCE_SECONDS) == {}
        assert soak.growth() <= MEGABYTES, soak.sizes
