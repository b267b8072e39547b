"""Workers as Ray's actors: one for `per_worker` rollouts, never detached, so that they end with the driver."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Set
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rollout_sandbox.confined.limits import ControlGroup, host_hierarchies
from verifiers.v1.utils.logging import setup_logging

from opencode_env.cluster.config import ClusterConfig
from opencode_env.cluster.driver import Started
from opencode_env.cluster.worker import Worker
from opencode_env.compat import begin_no_cluster, draining_nodes, join_ray
from opencode_env.errors import ClusterError, NodeLostError, NodeMemoryError

OWN_MEMORY = 1 << 30
"""Bytes of a worker process beside those of its sandboxes."""
MONITOR = "RAY_memory_monitor_refresh_ms"
"""The variable of a node that switches Ray's memory monitor off, by 0."""


class RayWorker(Worker):
    """A worker on a node of Ray's, which looks at the node's memory monitor first."""

    def where(self) -> dict[str, Any]:
        """Return where this is, with Ray's own name of the node."""
        import ray

        util: Any = ray.util
        here = {"node": ray.get_runtime_context().get_node_id(), "address": util.get_node_ip_address()}
        return {**super().where(), **here}

    async def begin(self, asked: dict[str, Any]) -> None:
        """Start the environment, unless Ray's monitor could kill this process for what its sandboxes take."""
        setup_logging()  # to the worker's log
        # Where memory is short Ray has the kernel end workers first: what one sandbox runs is to be, not all of them.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("0")
        # Whether the kernel holds sandboxes to their memory here, and not a look at them now and then.
        group = ControlGroup(host_hierarchies(), "ray", 1 << 30)
        sandboxes = asked["sandbox_memory"] if group.limits_memory or asked["sandbox_memory"] == 0 else None
        group.remove()
        if problem := monitored(os.environ.get(MONITOR), sandboxes, asked["memory"]):
            raise ClusterError(problem)
        await super().begin(asked)


def monitored(monitor: str | None, sandboxes: int | None, reserved: int | None) -> str:
    """Say why Ray's memory monitor could be turned by an agent against its neighbours; empty if it could not.

    Args:
        monitor: the node's `RAY_memory_monitor_refresh_ms`.
        sandboxes: bytes that the sandboxes of one worker may take on its node; None without a limit.
        reserved: bytes that are reserved for a worker.
    """
    needed = None if sandboxes is None else sandboxes + OWN_MEMORY
    if monitor == "0" or sandboxes == 0 or (needed is not None and (reserved or 0) >= needed):
        return ""
    told = f"{needed / (1 << 30):g} GiB" if needed else "with a limit that control groups keep of each sandbox"
    return (
        "Ray's memory monitor is on there, and could kill all rollouts for what one agent takes: start every node "
        f"with {MONITOR}=0, or reserve what the sandboxes of a worker may take (--env.cluster.memory, {told}; see "
        "--env.sandbox.max-memory and --env.cluster.per-worker)"
    )


class RayEngine:
    """Starts and ends workers on the cluster at `config.address`, as `driver.Engine` says."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config, self.alone, self._node = config, False, ""
        try:
            import ray
        except ImportError as error:
            raise ClusterError("--env.cluster.type ray wants Ray: install opencode-env[ray]") from error
        self._ray: Any = ray
        begin_no_cluster(ray)

    async def connect(self) -> None:
        address, limit = str(self._config.address), self._config.start_timeout
        if self._ray.is_initialized():
            at = self._ray.get_runtime_context().gcs_address
            raise ClusterError(
                f"this process has joined the Ray cluster at {at} already, and Ray lets it join one, once: play on "
                f"{address} (--env.cluster.address) from a process of its own"
            )
        host, _, port = address.rpartition(":")
        joined: Future[None] = Future()
        try:
            socket_made = await asyncio.to_thread(socket.create_connection, (host, int(port)), min(limit, 10.0))
            socket_made.close()
            # It may never end, and a process does not wait for such a thread.
            threading.Thread(target=self._join, args=(address, joined), daemon=True, name="ray").start()
            await asyncio.wait_for(asyncio.wrap_future(joined), limit)
        except Exception as error:
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            told += " (is it the head's own port, not its dashboard's?)" if isinstance(error, TimeoutError) else ""
            cause: BaseException = error
            while cause.__cause__ is not None:  # Ray says there what is wrong with a token, for one
                cause = cause.__cause__
            said = "" if cause is error else str(cause).strip()[-500:]
            told += said and f": {said}"
            raise ClusterError(
                f"no Ray cluster can be joined at {address} (--env.cluster.address) from this machine, which has to be "
                f"one of its nodes: {told}"
            ) from error
        finally:
            _own_signals()

    def _join(self, address: str, joined: Future[None]) -> None:
        # A token or another setting of Ray's is in the environment, where Ray reads it. That no handler of signals is
        # set from this thread is as wanted, and no warning.
        logging.getLogger("ray").setLevel(logging.ERROR)
        joined.set_running_or_notify_cancel()
        try:
            join_ray(self._ray, address)
            self._node = self._ray.get_runtime_context().get_node_id()
            self.alone = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]} == {self._node}
            joined.set_result(None)
        except Exception as error:  # noqa: BLE001 - handed on
            joined.set_exception(error)

    async def start_worker(self, order: bytes) -> Started:
        config, errors = self._config, self._ray.exceptions
        options = {
            "num_cpus": config.cpus,
            "memory": config.memory and int(config.memory),
            "resources": config.resources,
            "label_selector": config.labels,
            "runtime_env": config.runtime_env,
        }
        given = {name: value for name, value in options.items() if value}
        fixed = {"scheduling_strategy": "SPREAD", "max_restarts": 0, "max_concurrency": config.per_worker + 4}
        try:
            handle = self._ray.remote(RayWorker).options(**given, **fixed).remote()
        except (ValueError, TypeError) as error:
            asked = "--env.cluster.cpus, memory, resources, labels or runtime-env"
            raise ClusterError(f"Ray does not take what {asked} ask for, {json.dumps(given)}: {error}") from error
        started = None
        try:
            answer = json.loads(await asyncio.wait_for(handle.start.remote(order), config.start_timeout))
            place = f"worker on node {answer['address']} (process {answer['pid']}, node id {answer['node']})"
            if "refused" in answer:
                raise ClusterError(f"node {answer['address']} cannot play rollouts: {answer['refused']}")
            ended = asyncio.ensure_future(self._ended(handle))
            started = Started(handle, answer["address"], place, answer["node"], answer["node"] == self._node, ended)
            return started
        except TimeoutError as error:
            raise ClusterError(
                f"no worker was ready within {config.start_timeout:g} s (--env.cluster.start-timeout): does a node "
                f"have free what --env.cluster asks for, and can it start a process with that? {json.dumps(given)}"
            ) from error
        except (errors.RuntimeEnvSetupError, errors.RayTaskError, errors.ActorUnschedulableError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]  # its cause is the last
            told = " … ".join(dict.fromkeys([lines[0], lines[-1]]))[:2000]
            raise ClusterError(f"a worker cannot be started: {type(error).__name__}: {told}") from error
        except errors.RayError as error:
            # An actor whose class cannot be made tells of it as one that died.
            kind = ClusterError if "creation task" in str(error) else NodeLostError
            raise kind(f"a worker was lost at its start: {error}") from error
        finally:
            if started is None:
                self._ray.kill(handle)

    async def _ended(self, handle: Any) -> None:
        try:
            await handle.stopping.remote()
        except self._ray.exceptions.RayError:
            with contextlib.suppress(self._ray.exceptions.RayError):  # this process has left the cluster
                self._ray.kill(handle)  # as in `play`

    async def play(self, handle: Any, request: bytes) -> AsyncGenerator[tuple[str, bytes], None]:
        errors, played = self._ray.exceptions, handle.play.options(num_returns="streaming").remote(request)
        try:
            async for item in played:
                yield await item
        except (asyncio.CancelledError, GeneratorExit):
            self._ray.cancel(played)
            raise
        except errors.RayError as error:
            self._ray.kill(handle)  # one that is merely unavailable would play on beside the next try
            logs = "its log is in Ray's folder `session_latest/logs` there, by `ray logs` elsewhere"
            kind = NodeMemoryError if isinstance(error, errors.OutOfMemoryError) else NodeLostError
            raise kind(f"{type(error).__name__}: {error}; {logs}") from error

    async def leaving(self) -> Set[str]:
        return await asyncio.to_thread(draining_nodes, self._ray)

    async def end(self, handle: Any) -> None:
        try:
            with contextlib.suppress(self._ray.exceptions.RayError, TimeoutError):
                await asyncio.wait_for(handle.stop.remote(), 60)
        finally:
            self._ray.kill(handle)

    async def close(self) -> None:
        await asyncio.to_thread(self._ray.shutdown)


def _own_signals() -> None:
    """Set Python's handlers again: with Ray's own a SIGTERM aborts the process before anything is cleaned up."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.getsignal(number))
