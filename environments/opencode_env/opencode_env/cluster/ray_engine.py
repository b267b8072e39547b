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
from pathlib import Path
from typing import Any

from rollout_sandbox.confined.limits import ControlGroup, host_hierarchies
from verifiers.v1.utils.logging import setup_logging

from opencode_env.cluster.config import ClusterConfig
from opencode_env.cluster.driver import Started
from opencode_env.cluster.worker import Worker
from opencode_env.compat import draining_nodes
from opencode_env.errors import ClusterError, NodeLostError, NodeMemoryError

OWN_MEMORY = 1 << 30
"""Bytes of a worker process beside those of its sandboxes."""
MONITOR = "RAY_memory_monitor_refresh_ms"
"""The variable of a node that switches Ray's memory monitor off, by 0."""


class RayWorker(Worker):
    """A worker on a node of Ray's, which looks at the node's memory monitor first."""

    async def start(self, order: bytes) -> bytes:
        """Start the environment, unless Ray's monitor could kill this process for what its sandboxes take."""
        import ray

        setup_logging()  # to the worker's log
        # Where memory is short Ray has the kernel end workers first: what one sandbox runs is to be, not all of them.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("0")
        util: Any = ray.util
        asked, context = json.loads(order), ray.get_runtime_context()
        node = {"node": context.get_node_id(), "address": util.get_node_ip_address()}
        sandboxes = asked["sandbox_memory"] and (asked["sandbox_memory"] if _memory_is_bounded() else None)
        if problem := monitored(os.environ.get(MONITOR), sandboxes, asked["memory"]):
            return json.dumps({**node, "refused": problem}).encode()
        return json.dumps({**json.loads(await super().start(order)), **node}).encode()


def _memory_is_bounded() -> bool:
    """Whether the kernel holds sandboxes to their memory here, and not a look at them now and then."""
    group = ControlGroup(host_hierarchies(), "ray", 1 << 30)
    try:
        return group.limits_memory
    finally:
        group.remove()


def monitored(monitor: str | None, sandboxes: int | None, reserved: int | None) -> str:
    """Say why Ray's memory monitor could be turned by an agent against its neighbours; empty if it could not.

    Args:
        monitor: the node's `RAY_memory_monitor_refresh_ms`.
        sandboxes: bytes that the sandboxes of one worker may take on its node; None without a limit.
        reserved: bytes that are reserved for a worker.
    """
    if monitor == "0" or sandboxes == 0:
        return ""
    needed = "with a limit that control groups keep of each sandbox"
    if sandboxes is not None:
        needed = f"{(sandboxes + OWN_MEMORY) / (1 << 30):g} GiB"
    if sandboxes is not None and (reserved or 0) >= sandboxes + OWN_MEMORY:
        return ""
    return (
        "Ray's memory monitor is on there, and could kill all rollouts for what one agent takes: start every node "
        f"with {MONITOR}=0, or reserve what the sandboxes of a worker may take (--env.cluster.memory, {needed}; see "
        "--env.sandbox.max-memory and --env.cluster.per-worker)"
    )


class RayEngine:
    """Starts and ends workers on the cluster at `config.address`."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config, self.alone, self._node = config, False, ""
        try:
            import ray
        except ImportError as error:
            raise ClusterError("--env.cluster.type ray wants Ray: install opencode-env[ray]") from error
        self._ray: Any = ray

    async def connect(self) -> None:
        """Join the cluster as a driver.

        Raises:
            ClusterError: nobody answers at the address in time, or it refuses.
        """
        address, limit = str(self._config.address), self._config.start_timeout
        if self._ray.is_initialized():
            at = self._ray.get_runtime_context().gcs_address
            raise ClusterError(
                f"this process has joined the Ray cluster at {at} already, and Ray lets it join one, once: play on "
                f"{address} (--env.cluster.address) from a process of its own"
            )
        host, _, port = address.rpartition(":")
        try:
            socket_made = await asyncio.to_thread(socket.create_connection, (host, int(port)), min(limit, 10.0))
            socket_made.close()
            await asyncio.wait_for(_in_daemon(lambda: self._init(address)), limit)
        except Exception as error:
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            told += " (is it the head's own port, not its dashboard's?)" if isinstance(error, TimeoutError) else ""
            raise ClusterError(f"no Ray cluster can be joined at {address} (--env.cluster.address): {told}") from error
        finally:
            _own_signals()

    def _init(self, address: str) -> None:
        # A token or another setting of Ray's is in the environment, where Ray reads it. That no handler of signals is
        # set from this thread is as wanted, and no warning.
        logging.getLogger("ray").setLevel(logging.ERROR)
        self._ray.init(address=address, log_to_driver=False, configure_logging=False)
        self._node = self._ray.get_runtime_context().get_node_id()
        self.alone = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]} == {self._node}

    async def start_worker(self, order: bytes) -> Started:
        """Start an actor wherever Ray has room for it.

        Raises:
            ClusterError: none was ready in time, or it refused.
            NodeLostError: its process was lost.
        """
        config, errors = self._config, self._ray.exceptions
        options = {
            "num_cpus": config.cpus,
            "memory": config.memory and int(config.memory),
            "resources": config.resources or None,
            "label_selector": config.labels or None,
            "runtime_env": config.runtime_env or None,
            "scheduling_strategy": "SPREAD",
            "max_restarts": 0,
            "max_concurrency": config.per_worker + 4,
        }
        given = {name: value for name, value in options.items() if value is not None}
        handle = self._ray.remote(RayWorker).options(**given).remote()
        ready = False
        try:
            answer = json.loads(await asyncio.wait_for(_result(handle.start.remote(order)), config.start_timeout))
            place = f"worker on node {answer['address']} (process {answer.get('pid')}, node id {answer['node']})"
            if "refused" in answer:
                raise ClusterError(f"node {answer['address']} cannot play rollouts: {answer['refused']}")
            ready = True
        except TimeoutError as error:
            raise ClusterError(
                f"no worker was ready within {config.start_timeout:g} s (--env.cluster.start-timeout): does a node "
                f"have free what is reserved for one ({_reserved(config)}), and can it start a process"
                + (f" with --env.cluster.runtime-env {json.dumps(config.runtime_env)}?" if config.runtime_env else "?")
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
            if not ready:
                self._kill(handle)
        ended = asyncio.ensure_future(self._ended(handle))
        return Started(handle, answer["address"], place, answer["node"], answer["node"] == self._node, ended)

    async def _ended(self, handle: Any) -> None:
        try:
            await handle.stopping.remote()
        except self._ray.exceptions.RayError:
            self._kill(handle)  # as in `play`

    async def play(self, handle: Any, request: bytes) -> AsyncGenerator[tuple[str, bytes], None]:
        """Have an actor play an episode.

        Raises:
            NodeLostError: the actor does not answer any more; it has been killed.
            NodeMemoryError: it was ended by Ray because its node had no memory left.
        """
        errors, played = self._ray.exceptions, handle.play.options(num_returns="streaming").remote(request)
        try:
            async for item in played:
                yield await item
        except (asyncio.CancelledError, GeneratorExit):
            self._ray.cancel(played)
            raise
        except errors.RayError as error:
            self._kill(handle)  # one that is merely unavailable would play on beside the next try
            logs = "its log is in Ray's folder `session_latest/logs` there, by `ray logs` elsewhere"
            kind = NodeMemoryError if isinstance(error, errors.OutOfMemoryError) else NodeLostError
            raise kind(f"{type(error).__name__}: {error}; {logs}") from error

    async def leaving(self) -> Set[str]:
        """Return the ids of the nodes that Ray drains, before they are ended or taken away."""
        return await asyncio.to_thread(draining_nodes, self._ray)

    async def end(self, handle: Any) -> None:
        """Stop an actor's environment, and the actor."""
        try:
            await asyncio.wait_for(_result(handle.stop.remote()), 60)
        except (self._ray.exceptions.RayError, TimeoutError):
            pass
        finally:
            self._kill(handle)

    def _kill(self, handle: Any) -> None:
        self._ray.kill(handle, no_restart=True)

    async def close(self) -> None:
        """Leave the cluster; what is left of this driver's ends there."""
        await asyncio.to_thread(self._ray.shutdown)


async def _result(reference: Any) -> Any:
    return await reference


def _reserved(config: ClusterConfig) -> str:
    parts = [f"{config.cpus:g} cores", *([f"memory {config.memory.human_readable()}"] if config.memory else ())]
    parts += [f"{name} {amount:g}" for name, amount in config.resources.items()]
    return ", ".join([*parts, *(f"label {name}={value}" for name, value in config.labels.items())])


async def _in_daemon(act: Any) -> None:
    """Run what may never end in a thread that a process does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Exception | None] = loop.create_future()

    def run() -> None:
        failed: Exception | None = None
        try:
            act()
        except Exception as error:  # noqa: BLE001 - handed on
            failed = error
        loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(failed))

    threading.Thread(target=run, daemon=True, name="ray").start()
    if failure := await done:
        raise failure


def _own_signals() -> None:
    """Set Python's handlers again: with Ray's own a SIGTERM aborts the process before anything is cleaned up."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler is not None:
                signal.signal(number, handler)
