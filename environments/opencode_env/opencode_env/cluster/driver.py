"""The driver's side of a cluster: which worker plays which episode, when workers are started, and when they end."""

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import multiprocessing
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from rollout_sandbox.file_lock import private_directory, try_lock
from verifiers.v1.episode import WireEpisode
from verifiers.v1.serve.delta import unpack

from opencode_env.cluster.config import ClusterConfig
from opencode_env.errors import ClusterError, NodeLostError, NodeMemoryError

logger = logging.getLogger("verifiers.v1.opencode_env")

WORKER_IDLE_SECONDS = 60.0
"""After so long without a rollout a worker ends."""


class Engine(Protocol):
    """Starts workers on nodes. `handle` is the engine's own name of a worker."""

    one_machine: bool
    """Whether all nodes that were seen are this machine, for which a loopback endpoint is right."""

    async def connect(self) -> None:
        """Join the cluster, or raise `ClusterError`."""

    async def start_worker(self, order: bytes) -> tuple[Any, str]:
        """Start a worker and return it with its place, in words; or raise `ClusterError` or `NodeLostError`."""

    async def play(self, handle: Any, request: bytes) -> bytes:
        """Have a worker play an episode; cancelled, the worker drops it. Or raise a `NodeLostError` or
        `NodeMemoryError`: then the worker has been killed."""

    async def end(self, handle: Any) -> None:
        """Have a worker stop, and kill it."""

    async def close(self) -> None:
        """Leave the cluster."""


@dataclass(eq=False)
class _Running:
    handle: Any
    place: str
    lock: int | None
    playing: int = 0
    idle: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Cluster:
    """Plays episodes in workers: the fullest worker with a place gets the next, and others start as rollouts wait."""

    config: ClusterConfig
    engine: Engine
    order: bytes
    """What a worker is started with (see `Worker.start`)."""
    idle_seconds: float = WORKER_IDLE_SECONDS
    _workers: list[_Running] = field(default_factory=list)
    _waiting: deque[asyncio.Future[_Running]] = field(default_factory=deque)
    _starting: set[asyncio.Task[None]] = field(default_factory=set)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    _most: int | None = None
    """So many workers the cluster had room for when a start failed."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the connection to the cluster; workers end with it.

        Raises:
            ClusterError: the cluster cannot be joined.
        """
        await self.engine.connect()
        try:
            yield
        finally:
            for task in self._starting:
                task.cancel()
            await asyncio.gather(*self._starting, return_exceptions=True)
            for worker in [*self._workers]:
                self._end(worker)
            await asyncio.gather(*self._ending, return_exceptions=True)
            await self.engine.close()

    async def play(self, request: bytes) -> WireEpisode:
        """Have a worker play an episode (`RunRequest` as JSON), and check what it gives back as a file is checked.

        Raises:
            ClusterError: no worker can be started.
            NodeLostError: the worker was lost.
            NodeMemoryError: it was killed for want of memory on its node.
        """
        worker = await self._place()
        try:
            record = await self.engine.play(worker.handle, request)
        except (NodeLostError, NodeMemoryError) as error:
            self._forget(worker)
            raise type(error)(f"{worker.place}: {error}") from error
        finally:
            self._leave(worker)
        return await asyncio.to_thread(_episode, record)

    async def _place(self) -> _Running:
        waiting: asyncio.Future[_Running] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._dispatch()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._leave(waiting.result())
            raise

    def _dispatch(self) -> None:
        """Give free places to those who wait, and start as many workers as the others need."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            free = [worker for worker in self._workers if worker.playing < self.config.per_worker]
            if not free:
                break
            worker = max(free, key=lambda one: one.playing)
            worker.playing += 1
            if worker.idle is not None:
                worker.idle.cancel()
            self._waiting.popleft().set_result(worker)
        wanted = -(-len(self._waiting) // self.config.per_worker) - len(self._starting)
        room = wanted if self._most is None else self._most - len(self._workers) - len(self._starting)
        for _ in range(min(wanted, room)):
            lock = self._take_lock()
            if lock is None and self.config.max_workers is not None:
                asyncio.get_running_loop().call_later(1.0, self._dispatch)  # another process has them
                return
            task = asyncio.create_task(self._start(lock))
            self._starting.add(task)

    def _take_lock(self) -> int | None:
        """One of the locks that say how many workers there are, over all processes of a server's pool."""
        if self.config.max_workers is None:
            return None
        parent = multiprocessing.parent_process()
        pool = os.getpid() if parent is None else parent.pid
        folder = private_directory(Path(tempfile.gettempdir()) / f"opencode-env-workers-{os.getuid()}")
        source = id(self) if parent is None else hashlib.sha256(self.order).hexdigest()[:16]
        locks = (try_lock(folder / f"{pool}-{source}-{number}") for number in range(self.config.max_workers))
        return next((lock for lock in locks if lock is not None), None)

    async def _start(self, lock: int | None) -> None:
        kept = False
        try:
            handle, place = await self.engine.start_worker(self.order)
            self._workers.append(_Running(handle, place, lock))
            kept = True
            logger.info("a worker is ready: %s", place)
        except (ClusterError, NodeLostError) as error:
            self._failed(error)
        finally:
            if not kept and lock is not None:
                os.close(lock)
            task = asyncio.current_task()
            assert task is not None
            self._starting.discard(task)
        self._dispatch()

    def _failed(self, error: Exception) -> None:
        if self._workers:
            self._most = len(self._workers)
            logger.warning("no further worker, the others play on: %s", error)
            return
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(error)

    def _leave(self, worker: _Running) -> None:
        worker.playing -= 1
        if worker in self._workers and not worker.playing:
            worker.idle = asyncio.get_running_loop().call_later(self.idle_seconds, self._end, worker)
        self._dispatch()

    def _forget(self, worker: _Running) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            self._most = None
            if worker.lock is not None:
                os.close(worker.lock)

    def _end(self, worker: _Running) -> None:
        if worker in self._workers:
            if worker.idle is not None:
                worker.idle.cancel()
            self._forget(worker)
            task = asyncio.create_task(self.engine.end(worker.handle))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def _episode(record: bytes) -> WireEpisode:
    return WireEpisode.model_validate(unpack(record))


def require_reachable(urls: Iterable[str]) -> None:
    """Refuse endpoints that mean each node itself.

    Raises:
        ClusterError: a URL names the loopback interface; the message says what to give in its place.
    """
    for url in urls:
        host = urlsplit(url).hostname or ""
        if _is_loopback(host):
            raise ClusterError(
                f"the endpoint {host} means each node itself on a cluster: give an address of its machine that all "
                "nodes reach (--client.base-url)"
            )


def _is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
