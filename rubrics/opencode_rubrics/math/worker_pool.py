"""Worker processes that verify mathematics, beside the event loop and without verifiers.

Invariant: an answer costs at most its CPU deadline and one worker; a worker that hangs, crashes or whose caller was
cancelled is ended and replaced, and all of them die with this process, however it dies. Answers that take long hold at
most half of the places: each is first tried for a moment, and starts anew, among those alone, if that was too short.
They compute at half the weight of this process, which serves every agent.

An answer that hangs costs its deadline of CPU, and by the clock at most twice that and 1.5 seconds; a machine on which
a worker gets next to no CPU is an error, so that no right answer is a 0 for it.
"""

import asyncio
import atexit
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from mathverdict.bounded import BROKE_DOWN, DEADLINE_SIGNAL
from mathverdict.verdict import Source
from rollout_sandbox.toolbox.scoring import Scoring, ScoringError, exempt, not_the_agents
from verifiers.v1.utils.aio import run_shielded

from opencode_rubrics.math.rules_result import RulesResult, rules_result
from opencode_rubrics.math.worker_parent import Worker, WorkerGone, WorkerParent

_WALL_GRACE = 0.6
_FIRST_LOOK = 0.5


async def stop(asking: "asyncio.Future[bytes]", worker: Worker) -> None:
    """End a worker in the middle of a request."""
    asking.cancel()
    # Its descriptor is closed only when nobody waits on it: the number may be given out again at once.
    await asyncio.wait({asking})
    await worker.end()


async def in_time(asking: "asyncio.Future[bytes]", pid: int, seconds: float, brief: bool = False) -> bool:
    """Wait for a worker's reply; False if its time is up, which with `brief` no lack of CPU prolongs.

    The worker ends itself at its CPU deadline. On a busy machine that can be much later by the clock, so a worker
    that had a quarter of its CPU time when the clock is 0.6 seconds past twice the deadline counts as hung, too. One
    that got next to no CPU is a `ScoringError`.
    """
    started, grace = time.monotonic(), (seconds if brief else 2 * seconds) + _WALL_GRACE
    if await _done(asking, min(_FIRST_LOOK, seconds)):
        return True
    before = _cpu_seconds(pid)
    if await _done(asking, started + grace - time.monotonic()):
        return True
    if brief or _cpu_seconds(pid) - before >= seconds / 4:
        return False
    wall = 4 * seconds + 10
    if await _done(asking, started + wall - time.monotonic()):
        return True
    told = (
        f"a math worker got less than {seconds:g} s of CPU in {wall:g} s: this machine is overloaded; lower the number "
        "of concurrent rollouts or max_workers"
    )
    raise exempt(ScoringError(told))


async def _done(asking: "asyncio.Future[bytes]", seconds: float) -> bool:
    done, _ = await asyncio.wait({asking}, timeout=max(0.0, seconds))
    return bool(done)


def _cpu_seconds(pid: int) -> float:
    """CPU that a process has used (proc(5), fields 14 and 15 of stat); 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


logger = logging.getLogger("verifiers.v1.opencode_rubrics.math.worker_pool")

_ANSWERS_PER_WORKER = 5000
_ATTEMPTS = 2
_MOMENT = 0.25
"""CPU seconds that are enough for all but one answer in many."""

_open: "WeakSet[WorkerPool]" = WeakSet()
_shared: dict[int, tuple["WorkerPool", set[int]]] = {}


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def shared_pool(owner: object, size: int) -> "WorkerPool":
    """The process's pool of `size` workers for the running event loop, kept until every owner released it."""
    found = _shared.get(size)
    if found is None or found[0].loop is not asyncio.get_running_loop():
        if found is not None:
            found[0].close()
        found = _shared[size] = (WorkerPool(size), set())
    found[1].add(id(owner))
    return found[0]


def release_pool(owner: object) -> None:
    """Give up the pools that `owner` uses; those of nobody are closed."""
    for size, (pool, owners) in list(_shared.items()):
        owners.discard(id(owner))
        if not owners:
            del _shared[size]
            pool.close()


class Waiting:
    """How long one answer waited for its places, in seconds, which the clock of its scoring does not count."""

    def __init__(self, scoring: Scoring | None) -> None:
        self.seconds = 0.0
        self._scoring = scoring or Scoring()

    @contextlib.asynccontextmanager
    async def over(self, *places: asyncio.Semaphore) -> AsyncIterator[None]:
        """Hold one of each of the places."""
        started = time.perf_counter()
        async with AsyncExitStack() as stack:
            with self._scoring.not_counted():
                for place in places:
                    await stack.enter_async_context(place)
            self.seconds += time.perf_counter() - started
            yield


class WorkerPool:
    """Up to `size` workers, started as they are needed, for the running event loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(size)
        self._long_places = asyncio.Semaphore(max(1, size // 2))
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._parent: WorkerParent | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        _open.add(self)

    @property
    def pids(self) -> list[int]:
        """The parent and the live workers."""
        parent = [self._parent.pid] if self._parent else []
        return [*parent, *(worker.pid for worker in (*self._idle, *self._busy))]

    async def verify(
        self,
        reference: str,
        text: str,
        source: Source,
        seconds: float,
        scoring: Scoring | None = None,
        *,
        question: str = "",
        unrounded: bool = False,
    ) -> RulesResult:
        """The rules' verdict on `text`, as `mathverdict.verify_text` gives it; `seconds` is the CPU time it may cost. A
        `ScoringError` if the reference is empty, or workers are killed on it or cannot be started."""
        waiting = Waiting(scoring)
        asked = {"reference": reference, "text": text, "source": source, "question": question, "unrounded": unrounded}
        outcome = await self._outcome(asked, seconds, waiting)
        if isinstance(outcome, bytes):
            return replace(rules_result(json.loads(outcome)), waited=waiting.seconds)
        if outcome == -DEADLINE_SIGNAL:
            return RulesResult(False, "timed_out", seconds=seconds, waited=waiting.seconds)
        return RulesResult(False, "crashed", waited=waiting.seconds)

    async def stated_answer(self, text: str, source: Source, seconds: float, scoring: Scoring | None = None) -> str:
        """The one final answer in `text`, compared with nothing; empty if there is none or it cannot be told in time. A
        `ScoringError` if workers are killed on it or cannot be started."""
        outcome = await self._outcome({"reference": None, "text": text, "source": source}, seconds, Waiting(scoring))
        return str(json.loads(outcome)["stated"]) if isinstance(outcome, bytes) else ""

    async def _outcome(self, request: dict[str, Any], seconds: float, waiting: "Waiting") -> bytes | int:
        """The reply to a request, or why there is none: the deadline's or a broken-down worker's exit code."""
        brief = seconds > _MOMENT
        async with waiting.over(self._places):
            outcome = await self._tried({**request, "long": False}, min(seconds, _MOMENT), brief)
        if not brief or outcome != -DEADLINE_SIGNAL:
            return outcome
        # With one place for all, the long ones have one beside it.
        places = [self._long_places, self._places] if self.size > 1 else [self._long_places]
        async with waiting.over(*places):
            return await self._tried({**request, "long": True}, seconds)

    async def _tried(self, request: dict[str, Any], seconds: float, brief: bool = False) -> bytes | int:
        """The same, in a place that is held; `brief`: there is another try, with more time."""
        code = 0
        for attempt in range(1, _ATTEMPTS + 1):
            outcome = await self._attempt(request, seconds, brief)
            if isinstance(outcome, bytes) or outcome == -DEADLINE_SIGNAL:
                return outcome
            code = outcome
            logger.warning("a math worker ended with exit code %d (attempt %d)", code, attempt)
        if code in BROKE_DOWN:
            return code
        raise ScoringError(
            f"the math worker ended {_ATTEMPTS} times on one answer (exit code {code}): if it was killed (-9), give "
            "the machine more memory or lower max_workers"
        )

    async def _attempt(self, request: dict[str, Any], seconds: float, brief: bool) -> bytes | int:
        """The reply, or the exit code of the worker that died on it."""
        if not self._idle:
            await run_shielded(self._add_worker())
        if not self._idle:
            return -signal.SIGKILL
        worker = self._idle.pop()
        self._busy.add(worker)
        keep = False
        asking = asyncio.ensure_future(worker.ask(json.dumps({**request, "seconds": seconds}).encode()))
        try:
            if not await in_time(asking, worker.pid, seconds, brief):
                return -DEADLINE_SIGNAL
            reply = asking.result()
            worker.answered += 1
            keep = worker.answered < _ANSWERS_PER_WORKER and not request["long"]
            return reply
        except WorkerGone:
            code = await run_shielded(worker.end())
            if worker.parent.ended:
                self._forget(worker.parent)  # its idle workers have gone with it
            return code
        finally:
            self._busy.discard(worker)
            if keep and not self._closed:
                self._idle.append(worker)
            elif worker.connection.fileno() != -1:
                await run_shielded(stop(asking, worker))

    async def _add_worker(self) -> None:
        """Fork one more worker; none if the parent was lost, which the next call replaces."""
        async with self._starting:
            if self._closed:
                raise exempt(ScoringError("the math workers were stopped while an answer was scored"))
            if self._parent is None:
                with not_the_agents():
                    self._parent = await WorkerParent.start()
            parent = self._parent
            try:
                self._idle.append(await parent.fork())
            except WorkerGone:
                self._forget(parent)

    def _forget(self, parent: WorkerParent) -> None:
        """Drop a lost parent and its idle workers; busy ones find out by themselves."""
        if self._parent is parent:
            self._parent = None
        for worker in [worker for worker in self._idle if worker.parent is parent]:
            self._idle.remove(worker)
            worker.connection.close()
        parent.close()

    def close(self) -> None:
        """End all workers; idempotent, blocks for some milliseconds, needs no event loop."""
        self._closed = True
        if self._parent is not None:
            self._forget(self._parent)


@atexit.register
def _close_all() -> None:
    """Environments of verifiers itself tear no rubric down: the workers end with the interpreter then."""
    for pool in list(_open):
        pool.close()
