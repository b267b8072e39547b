"""What the tests of the math rubrics share: one scoring with its record, and pools of workers."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, Rubric
from opencode_rubrics.math.worker_pool import WorkerPool

from tests.rubrics.conftest import CheckedData, trace_of
from tests.support.processes import alive
from tests.support.waiting import wait_until

QUESTION = "What is the value?"
HANG = r"(1/3)!+10^{-2000}\sqrt{2}"
"""An answer that no rule is done with in any time that a test has."""


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
    trace = trace_of(CheckedData(**{"prompt": QUESTION, "answer": reference, **data}), reply)
    started = time.monotonic()
    await rubric.score(trace.task.data, trace, box)
    return Scored(trace, time.monotonic() - started)


def pool_of(size: int) -> contextlib.closing[WorkerPool]:
    """A pool of its own, closed at the end."""
    return contextlib.closing(WorkerPool(size))


def pids_of(pool: WorkerPool) -> list[int]:
    """The process that forks a pool's workers, and the workers that live."""
    if pool._parent is None:
        return []
    parent = pool._parent.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [parent, *filter(alive, map(int, children))]


def wait_until_gone(pids: list[int]) -> list[int]:
    """Those of `pids` that still run after all patience."""
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not any(alive(pid) for pid in pids))
    return [pid for pid in pids if alive(pid)]
