"""The driver's side of a cluster: which worker plays which episode, when workers are started, and when they end."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from rollout_sandbox.confined.network import is_own_machine
from rollout_sandbox.file_lock import is_locked, private_directory, try_lock
from verifiers.v1.episode import WireEpisode
from verifiers.v1.errors import EnvError
from verifiers.v1.serve.delta import unpack

from opencode_env.cluster.claims import Claims
from opencode_env.cluster.config import ClusterConfig
from opencode_env.errors import ClusterError, NodeLostError, NodeMemoryError

logger = logging.getLogger("verifiers.v1.opencode_env")

WORKER_IDLE_SECONDS = 60.0
"""After so long without a rollout a worker ends."""
_PAUSE = 60.0
"""Seconds until another worker is tried where the cluster had no room for one."""
_STARTS = 16
"""Workers that are started at once, at most."""
_QUIET = 30.0
"""Seconds of a start after which is said what it waits for."""


@dataclass(eq=False)
class Started:
    """A worker that is ready, and what it plays."""

    handle: Any
    """The engine's own name of it."""
    node: str
    """The address of its node."""
    place: str
    """Where it is, in words: `worker on node ADDRESS` and more."""
    node_id: str
    """The engine's own name of its node."""
    here: bool
    """Whether its node is the driver's, for which a loopback endpoint is right."""
    ended: "asyncio.Future[None] | None" = None
    """Done once it has ended, also while it plays nothing."""
    lock: int | None = None
    playing: int = 1
    leaving: bool = False
    idle: asyncio.TimerHandle | None = None


class Engine(Protocol):
    """Starts workers on nodes. `handle` is the engine's own name of a worker."""

    alone: bool
    """Whether the driver's node was the only one when it joined."""

    async def connect(self) -> None:
        """Join the cluster, or raise `ClusterError`."""

    async def start_worker(self, order: bytes) -> Started:
        """Start a worker, or raise `ClusterError` or `NodeLostError`."""

    def play(self, handle: Any, request: bytes) -> AsyncGenerator[tuple[str, bytes], None]:
        """Have a worker play an episode, and give what `Worker.play` yields; cancelled, the worker drops it. Or raise a
        `NodeLostError` or `NodeMemoryError`: then the worker has been killed."""

    async def leaving(self) -> Set[str]:
        """Return the ids of the nodes that are to be given back, and get no further rollout."""

    async def end(self, handle: Any) -> None:
        """Have a worker stop, and kill it."""

    async def close(self) -> None:
        """Leave the cluster."""


@dataclass(eq=False)
class Cluster:
    """Plays episodes in workers: the fullest worker with a place gets the next, and others start as rollouts wait."""

    config: ClusterConfig
    engine: Engine
    order: bytes
    """What a worker is started with (see `Worker.start`)."""
    urls: Sequence[str] = ()
    """The endpoints that it names."""
    claims: Claims | None = None
    """Those that write into a folder of all nodes, if any does."""
    source: str = ""
    """What all processes of a server's pool have in common that play the same."""
    idle_seconds: float = WORKER_IDLE_SECONDS
    look_seconds: float = 5.0
    """So often the engine is asked which nodes leave."""
    _workers: list[Started] = field(default_factory=list)
    _waiting: list[asyncio.Future[Started]] = field(default_factory=list)
    _starting: dict[asyncio.Task[Started], int | None] = field(default_factory=dict)
    """With the lock of the worker that it will be."""
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    _next: int | None = None
    """The lock of the process whose rollouts wait for its first worker while others have all (`max_workers`)."""
    _later: asyncio.TimerHandle | None = None
    """Until when no worker is started."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the connection to the cluster; workers end with it.

        Raises:
            ClusterError: the cluster cannot be joined.
        """
        with contextlib.nullcontext() if self.claims is None else self.claims.holding():
            await self.engine.connect()
            looking = asyncio.create_task(self._look_for_leaving())
            try:
                yield
            finally:
                self._waiting.clear()  # for nobody is a worker started any more
                for task in (looking, *self._starting):
                    task.cancel()
                await asyncio.gather(*self._starting, return_exceptions=True)
                for worker in [*self._workers]:  # those as well that were ready before they could be cancelled
                    self._end(worker)
                self._be_next(False)
                await asyncio.gather(*self._ending, return_exceptions=True)
                await self.engine.close()

    def require_reachable(self, url: str, worker: Started | None = None) -> None:
        """Refuse an endpoint, or one of the configuration, that means each node itself where there are several, or
        where a worker is.

        Raises:
            ClusterError: the message says what to give in its place.
        """
        if self.engine.alone if worker is None else worker.here:
            return
        for host in (urlsplit(one).hostname or "" for one in (url, *self.urls)):
            if is_own_machine(host):
                raise ClusterError(
                    f"the endpoint {host} means each node itself on a cluster: give an address of its machine that all "
                    "nodes reach (--client.base-url)"
                )

    async def play(
        self, request: bytes, url: str, watch: Callable[[dict[str, Any]], None] = lambda delta: None
    ) -> tuple[WireEpisode, str]:
        """Have a worker play an episode, as `Worker.play` takes it and with the endpoint `url`; return what it gives
        back, checked as a file is, and its node's address. `watch` is given the changes of its traces meanwhile.

        Raises:
            ClusterError: no worker can be started; or it is not where the endpoint is.
            NodeLostError: the worker was lost.
            NodeMemoryError: it was killed for want of memory on its node.
            EnvError: the worker could not play it, or its record cannot be read.
        """
        worker, kind, data = await self._place(), "", b""
        try:
            self.require_reachable(url, worker)
            async with contextlib.aclosing(self.engine.play(worker.handle, request)) as items:
                async for kind, data in items:
                    if kind == "delta":
                        _show(watch, data)
                    elif kind == "kept" and self.claims is not None:
                        await asyncio.to_thread(_show, self.claims.kept, data)
        except (NodeLostError, NodeMemoryError) as error:
            self._end(worker, killed=True)
            raise type(error)(f"{worker.place}: {error}") from error
        finally:
            self._leave(worker)
        try:
            return await asyncio.to_thread(_episode, kind, data), worker.node
        except Exception as error:
            raise EnvError(f"{worker.place} gave no episode: {error}") from error

    async def _place(self) -> Started:
        waiting: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._dispatch()
        try:
            return await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled() and waiting.exception() is None:
                self._leave(waiting.result())
            raise

    def _dispatch(self) -> None:
        """Give free places to those who wait, and start as many workers as the others need."""
        self._waiting = [one for one in self._waiting if not one.done()]
        while self._waiting:
            free = [one for one in self._workers if one.playing < self.config.per_worker and not one.leaving]
            if not free:
                break
            worker = max(free, key=lambda one: one.playing)
            worker.playing += 1
            if worker.idle is not None:
                worker.idle.cancel()
            self._waiting.pop(0).set_result(worker)
        try:
            while self._later is None and len(self._starting) < min(
                _STARTS, len(self._waiting) / self.config.per_worker
            ):
                lock = self._take_lock()
                if lock is None and self.config.max_workers is not None:
                    self._pause(1.0)  # another process may have them
                else:
                    if not self._workers and not self._starting:
                        asyncio.get_running_loop().call_later(_QUIET, self._say_what_is_missing)
                    starting = asyncio.create_task(self.engine.start_worker(self.order))
                    self._starting[starting] = lock
                    starting.add_done_callback(self._started)
            self._be_next(bool(self._waiting) and not self._workers and not self._starting)
        except OSError as error:  # of a lock's file
            self._failed(ClusterError(f"workers cannot be counted (--env.cluster.max-workers): {error}"))

    def _say_what_is_missing(self) -> None:
        if self._starting and not self._workers:
            asked = self.config.model_dump(include={"cpus", "memory", "resources", "labels", "runtime_env"})
            logger.warning("no worker is ready yet: does a node have free what --env.cluster asks for? %s", asked)

    def _pause(self, seconds: float) -> None:
        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
            self._dispatch()

    def _take_lock(self) -> int | None:
        """One of the locks that say how many workers there are, over all processes of a server's pool; the next that is
        free is that of a process which waits for its first."""
        if self.config.max_workers is None or self._is_another_next():
            return None
        locks = (try_lock(self._lock_file(str(number))) for number in range(self.config.max_workers))
        return next((lock for lock in locks if lock is not None), None)

    def _lock_file(self, name: str) -> Path:
        parent = multiprocessing.parent_process()
        pool = os.getpid() if parent is None else parent.pid
        folder = private_directory(Path(tempfile.gettempdir()) / f"opencode-env-workers-{os.getuid()}")
        return folder / f"{pool}-{id(self) if parent is None else self.source}-{name}"

    def _is_another_next(self) -> bool:
        return self._next is None and is_locked(self._lock_file("next"))

    def _be_next(self, waits: bool) -> None:
        if waits and self._next is None:
            self._next = try_lock(self._lock_file("next"))
        elif not waits and self._next is not None:
            os.close(self._next)
            self._next = None

    def _started(self, starting: asyncio.Task[Started]) -> None:
        lock = self._starting.pop(starting)
        error = None if starting.cancelled() else starting.exception()
        if error is None and not starting.cancelled():
            worker = starting.result()
            worker.lock = lock
            self._workers.append(worker)
            logger.info("a worker is ready: %s", worker.place)
            if worker.ended is not None:
                worker.ended.add_done_callback(lambda _: self._ended(worker))
            self._leave(worker)  # its first place is free now
            return
        if lock is not None:
            os.close(lock)
        if isinstance(error, ClusterError | NodeLostError):
            self._failed(error)
        elif error is not None:  # who waits for a place has to be told
            self._failed(ClusterError(f"a worker cannot be started: {type(error).__name__}: {error}"))

    def _failed(self, error: Exception) -> None:
        """A worker cannot be started: those that play go on, and where there are none whoever waits is told."""
        if self._workers or self._starting:
            self._pause(_PAUSE)
            logger.warning("no further worker for now, the others play on: %s", error)
        else:
            waiting = [one for one in self._waiting if not one.done()]
            # A lost node is one start's bad luck; anything else would happen to all.
            for one in waiting[: self.config.per_worker] if isinstance(error, NodeLostError) else waiting:
                one.set_exception(error)
            self._resume()
        self._dispatch()

    def _leave(self, worker: Started) -> None:
        worker.playing -= 1
        if worker in self._workers and not worker.playing:
            seconds = 0.0 if worker.leaving else self.idle_seconds
            worker.idle = asyncio.get_running_loop().call_later(seconds, self._end, worker)
        self._dispatch()

    async def _look_for_leaving(self) -> None:
        """Let the workers of nodes that are drained finish what they play, and no more."""
        while True:
            await asyncio.sleep(self.look_seconds)
            leaving = await self.engine.leaving() if self._workers else ()
            for worker in [one for one in self._workers if one.node_id in leaving and not one.leaving]:
                self._give_back(worker, "its node is drained")
            shared = self.config.max_workers and self._workers and not any(one.leaving for one in self._workers)
            if shared and self._is_another_next():
                worker = min(self._workers, key=lambda one: one.playing)
                self._give_back(worker, "another process of the pool has none (--env.cluster.max-workers)")

    def _give_back(self, worker: Started, reason: str) -> None:
        worker.leaving = True
        logger.info("no further rollout for the %s: %s", worker.place, reason)
        if not worker.playing:
            self._end(worker)

    def _ended(self, worker: Started) -> None:
        """No rollout is handed to a worker that was lost; those that it plays are told by their own calls."""
        if worker in self._workers:
            logger.warning("no further rollout for the %s: it was lost", worker.place)
            self._end(worker)

    def _end(self, worker: Started, killed: bool = False) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            if worker.lock is not None:
                os.close(worker.lock)
            if not killed:
                task = asyncio.create_task(self.engine.end(worker.handle))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            self._resume()


def _show(watch: Callable[[Any], None], data: bytes) -> None:
    try:
        watch(unpack(data))
    except Exception as error:  # noqa: BLE001 - nothing that is only looked at ends a rollout
        logger.warning("news of a rollout cannot be taken up: %s: %s", type(error).__name__, error)


def _episode(kind: str, data: bytes) -> WireEpisode:
    if kind != "episode":
        raise ValueError(data.decode(errors="replace"))
    return WireEpisode.model_validate(unpack(data))
