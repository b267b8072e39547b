"""A Ray head and further nodes on this machine, each with a loopback address of its own; all have ended at the end."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
RAY = Path(sys.executable).with_name("ray")
STARTED = "Ray runtime started"
SLOW = "timed out during startup"
TRIES = 10
AT_ONCE = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
"""With it SIGTERM ends `ray start` without the half minute in which Ray lets a node drain."""
END_SECONDS = 60.0


def cluster_variables() -> dict[str, str]:
    """What all nodes and the driver have in their environments.

    Ray's memory monitor is off, since an agent could have it kill a worker. Whoever reaches Ray's ports runs code, and
    they are open on all interfaces, so that Ray asks for a token. A node that is to end ends at once.
    """
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return {"RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0", **AT_ONCE, **token}


def own_address() -> str:
    """Return this machine's address as Ray's nodes know it; at a loopback address an endpoint is refused."""
    import ray

    util: Any = ray.util
    return str(util.get_node_ip_address())


@asynccontextmanager
async def cluster_nodes(count: int, cpus: float, variables: Mapping[str, str]) -> AsyncIterator[str]:
    """Start a head, on which no worker fits, and nodes; yields the head's address.

    Args:
        count: nodes beside the head.
        cpus: cores that each offers.
        variables: those of `cluster_variables`.

    Raises:
        RuntimeError: a node did not start; the message ends with its log.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets are short
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    here = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}"]
    head: list[Process] = []
    nodes: list[Process] = []
    try:
        await _up(head, here, folder / "head.log", variables)
        for number in range(count):  # at once, two would give their sockets the same name, and end
            there = [f"--address=127.0.0.1:{port}", f"--node-ip-address=127.0.0.{number + 2}", f"--num-cpus={cpus:g}"]
            await _up(nodes, there, folder / f"node-{number}.log", variables)
        yield f"127.0.0.1:{port}"
    finally:
        await asyncio.gather(*map(end, nodes))  # a node whose head is gone waits for it
        await asyncio.gather(*map(end, head))
        shutil.rmtree(folder, ignore_errors=True)


async def _up(nodes: list[Process], options: Sequence[str], log: Path, variables: Mapping[str, str]) -> None:
    """Start a node, once more where it was not up within the 30 s that Ray gives itself, as on a busy machine."""
    argv = [str(RAY), "start", *options, "--block", "--object-store-memory=100000000"]
    for _ in range(TRIES):
        with log.open("wb") as out:
            environment = {**os.environ, **variables}
            node = await asyncio.create_subprocess_exec(*argv, stdout=out, stderr=out, env=environment, process_group=0)
        nodes.append(node)
        while node.returncode is None:
            if STARTED in log.read_text():
                return
            await asyncio.sleep(0.1)
        if SLOW not in log.read_text():
            break
    raise RuntimeError(f"a node of Ray did not start: {log.read_text()[-2000:]}")


async def until_ended(work: Coroutine[Any, Any, T]) -> T:
    """Do some work, which SIGTERM and Ctrl-C cancel; a second of them does not end its clean-up."""
    working, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: working.cancelling() or working.cancel())
    return await working


async def end(program: Process) -> None:
    """End a program and its group; for nodes `ray stop` would end those of others, too."""
    if program.returncode is None:
        program.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(program.wait(), END_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    await program.wait()
