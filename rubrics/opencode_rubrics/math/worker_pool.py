"""Worker processes that verify mathematics, beside the event loop and without verifiers.

A process that has everything imported (`verdict_programs.on_host`) forks the workers. Invariant: an answer costs at
most its CPU deadline and one worker; a worker that hangs, crashes or whose caller was cancelled is ended and replaced,
and all of them die with this process, however it dies. Answers that take long hold at most half of the places: each is
first tried for a moment, and starts anew, among those alone and at half the weight, if that was too short.

By the clock an answer costs at most twice its deadline and 1.5 seconds; a machine on which a worker gets next to no CPU
is an error, so that no right answer is a 0 for it.
"""

import asyncio
import atexit
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

from mathverdict.bounded import BROKE_DOWN, DEADLINE_SIGNAL
from mathverdict.verdict import Source
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.toolbox.scoring import Scoring, exempt, not_the_agents
from verifiers.v1.utils.aio import run_shielded

logger = logging.getLogger("verifiers.v1.opencode_rubrics.math.worker_pool")

_LIBRARIES = ("mathverdict", "math_verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4")
_WALL_GRACE = 0.6
_FIRST_LOOK = 0.5
_ANSWERS_PER_WORKER = 5000
_ATTEMPTS = 2
_MOMENT = 0.25
"""CPU seconds that are enough for all but one answer in many."""


@dataclass(frozen=True)
class RulesResult:
    """Holds what math-verify and the rules around it say about one answer, whether a worker or a sandbox gave it."""

    right: bool
    reason: str
    """As in `mathverdict.verdict.Verdict`, or "timed_out", "crashed" (verifying broke down over it), or why there is no
    usable answer."""
    answer: str = ""
    conflicting: bool = False
    seconds: float = 0.0
    waited: float = 0.0
    """Seconds before there was a place for it."""
    text: str = ""
    """The reply or the file that it is about; empty if there is nothing in it that could be an answer."""
    source: Source = "file"
    """What `text` is."""
    place: Literal["host", "sandbox"] = "host"
    """Where the rules ran."""


def rules_result(reply: Mapping[str, Any]) -> RulesResult:
    """The result in a worker's reply; a `ScoringError` if the reference is empty."""
    if reply.get("no_reference"):
        raise ScoringError("the task's reference answer is empty: fix the row, or its answer_key")
    verdict = reply["verdict"]
    return RulesResult(
        bool(verdict["right"]),
        str(verdict["reason"]),
        str(verdict["answer"]),
        bool(verdict["conflicting"]),
        float(reply.get("seconds", 0.0)),
    )


class _WorkerGone(Exception):
    """The other end of a socket closed."""


def _import_roots() -> list[str]:
    """Return what a worker needs on its import path: the directories of its program, of mathverdict and of
    math-verify."""
    roots = [str(Path(__file__).parent)]
    for name in _LIBRARIES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ScoringError(f"{name} is not installed: install opencode-rubrics with its dependencies")
        roots.append(str(Path(spec.origin).parent.parent))
    return list(dict.fromkeys(roots))


class _Parent:
    """The process that forks the workers, which die with it; one that is lost stays lost."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._one_request = asyncio.Lock()
        self.pid = process.pid

    @classmethod
    async def start(cls) -> "_Parent":
        """A new one that is up, started on this thread, with which the kernel ends it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        start = f"from verdict_programs.on_host import main; main({theirs.fileno()}, {os.getpid()})"
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 - a thread that ends would take the process along
                [sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {_import_roots()!r}; {start}"],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        parent = cls(process, ours)
        try:
            await parent._reply()
        except BaseException as error:
            parent.close()
            if not isinstance(error, _WorkerGone):
                raise
            raise ScoringError(
                f"the math workers did not start (exit code {process.returncode}): what they printed is above; "
                "reinstall opencode-rubrics"
            ) from None
        return parent

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    async def fork(self) -> "_Worker":
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                return _Worker(await self._request(b"fork", theirs), self, ours)
        except BaseException:
            ours.close()
            raise

    async def end(self, pid: int) -> int:
        """Exit code of a worker, killed if it still runs; -9 if the parent, and so the worker, is lost."""
        try:
            return await self._request(f"end {pid}".encode())
        except _WorkerGone:
            return -signal.SIGKILL

    async def _request(self, message: bytes, *passed: socket.socket) -> int:
        async with self._one_request:
            try:
                socket.send_fds(self._control, [message], [given.fileno() for given in passed])
            except OSError as error:
                raise _WorkerGone from error
            return int(await self._reply())

    async def _reply(self) -> bytes:
        data, cause = b"", None
        try:
            async with asyncio.timeout(60.0):
                data = await asyncio.get_running_loop().sock_recv(self._control, 64)
        except (TimeoutError, OSError) as error:
            cause = error
        if not data:
            self._control.close()
            raise _WorkerGone from cause
        return data

    def close(self) -> None:
        """Kill it, and with it all its workers; idempotent, blocks for some milliseconds."""
        if not self.ended:
            self._process.kill()
            self._process.wait()
        # Whoever waits for a reply sees the end of the socket; closing it here would leave them waiting.
        if not self._one_request.locked():
            self._control.close()


@dataclass(eq=False)
class _Worker:
    """One fork and the host's end of its socket."""

    pid: int
    parent: _Parent
    connection: socket.socket
    answered: int = 0

    async def ask(self, request: dict[str, Any]) -> bytes:
        loop, reply = asyncio.get_running_loop(), b""
        try:
            await loop.sock_sendall(self.connection, json.dumps(request).encode() + b"\n")
            while not reply.endswith(b"\n"):
                if not (chunk := await loop.sock_recv(self.connection, 1 << 16)):
                    raise _WorkerGone
                reply += chunk
        except ConnectionError as error:
            raise _WorkerGone from error
        return reply

    async def end(self, asking: "asyncio.Future[bytes]") -> int:
        """End the worker if it still runs, also in the middle of a request; its exit code."""
        asking.cancel()
        # Its descriptor is closed only when nobody waits on it: the number may be given out again at once.
        await asyncio.wait({asking})
        self.connection.close()
        return await self.parent.end(self.pid)


async def _in_time(asking: "asyncio.Future[bytes]", pid: int, seconds: float, brief: bool = False) -> bool:
    """Wait for a worker's reply; False if its time is up, which with `brief` no lack of CPU prolongs. On a busy machine
    the worker's CPU deadline can be late by the clock, so a worker that had a quarter of its CPU time when the clock is
    0.6 seconds past twice the deadline counts as hung, too. One that got next to no CPU is a `ScoringError`."""
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


_open: "WeakSet[WorkerPool]" = WeakSet()
_shared: dict[int, tuple["WorkerPool", set[int]]] = {}


_CORES_VARIABLE = "MATHVERDICT_WORKERS"
"""Names how many cores there are for whoever has a share of a machine, as a worker of a cluster has."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return how many cores' work this process may do at once: what `MATHVERDICT_WORKERS` says, else those it may run
    on, within the quota of its container (`ValueError`: the variable names no number above 0)."""
    if told := os.environ.get(_CORES_VARIABLE):
        if not told.isdecimal() or int(told) < 1:
            raise ValueError(f"{_CORES_VARIABLE} is {told!r}: it is a number of workers, 1 or more")
        return int(told)
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
    except OSError:  # no container's, or control groups of the first version
        return cores
    return cores if quota == "max" else max(1, min(cores, -(-int(quota) // int(period))))


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


class _Waiting:
    """Tells how long one answer waited for its places, in seconds, which the clock of its scoring does not count."""

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
        self._idle: list[_Worker] = []
        self._parent: _Parent | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        _open.add(self)

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
        waiting = _Waiting(scoring)
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
        outcome = await self._outcome({"reference": None, "text": text, "source": source}, seconds, _Waiting(scoring))
        return str(json.loads(outcome)["stated"]) if isinstance(outcome, bytes) else ""

    async def _outcome(self, request: dict[str, Any], seconds: float, waiting: _Waiting) -> bytes | int:
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
        keep = False
        asking = asyncio.ensure_future(worker.ask({**request, "seconds": seconds}))
        try:
            if not await _in_time(asking, worker.pid, seconds, brief):
                return -DEADLINE_SIGNAL
            reply = asking.result()
            worker.answered += 1
            keep = worker.answered < _ANSWERS_PER_WORKER and not request["long"]
            return reply
        except _WorkerGone:
            code = await run_shielded(worker.end(asking))
            if worker.parent.ended:
                self._forget(worker.parent)  # its idle workers have gone with it
            return code
        finally:
            if keep and not self._closed:
                self._idle.append(worker)
            elif worker.connection.fileno() != -1:
                await run_shielded(worker.end(asking))

    async def _add_worker(self) -> None:
        """Fork one more worker; none if the parent was lost, which the next call replaces."""
        async with self._starting:
            if self._closed:
                raise exempt(ScoringError("the math workers were stopped while an answer was scored"))
            if self._parent is None:
                with not_the_agents():
                    self._parent = await _Parent.start()
            parent = self._parent
            try:
                self._idle.append(await parent.fork())
            except _WorkerGone:
                self._forget(parent)

    def _forget(self, parent: _Parent) -> None:
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
