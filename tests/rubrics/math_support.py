"""What the tests of the math rubrics share: the labelled corpus, a task to score, and one scoring with its record."""

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, Rubric
from opencode_rubrics.math.worker_pool import WorkerPool

from tests.rubrics.conftest import trace_of
from tests.support.processes import alive
from tests.support.waiting import wait_until

CORPUS = Path(__file__).parents[1] / "mathverdict" / "data" / "pairs.jsonl"
QUESTION = "What is the value?"
HANG = r"(1/3)!+10^{-2000}\sqrt{2}"
"""An answer that no rule is done with in any time that a test has."""


@dataclass(frozen=True)
class Pair:
    """A reference, an answer file's content, and whether the two are equal."""

    kind: str
    reference: str
    answer: str
    equal: bool


def corpus() -> list[Pair]:
    """The labelled pairs, in order."""
    return [Pair(**json.loads(line)) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


class MathData(vf.TaskData):
    """Task data of any taskset that fits the math rubrics."""

    answer: str | None = None


@dataclass(frozen=True)
class Scored:
    """What one scoring left on the trace."""

    trace: AnyTrace
    seconds: float

    @property
    def reward(self) -> float:
        return self.trace.reward

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = self.trace.info["math"]
        return found

    @property
    def reason(self) -> str:
        return str(self.record["reason"])


async def score(
    rubric: Rubric[Any], box: vf.Runtime | None, reference: str | None, reply: str = "", **data: Any
) -> Scored:
    """Score one rollout of a task with this reference."""
    task = MathData(**{"prompt": QUESTION, "answer": reference, **data})
    trace = trace_of(task, reply)
    started = time.monotonic()
    await rubric.score(task, trace, box)
    return Scored(trace, time.monotonic() - started)


@contextmanager
def pool_of(size: int) -> Iterator[WorkerPool]:
    """A pool of its own, closed at the end."""
    pool = WorkerPool(size)
    try:
        yield pool
    finally:
        pool.close()


def wait_until_gone(pids: list[int]) -> list[int]:
    """Those of `pids` that still run after all patience."""
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not any(alive(pid) for pid in pids))
    return [pid for pid in pids if alive(pid)]
