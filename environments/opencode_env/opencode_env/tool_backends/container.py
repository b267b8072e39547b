"""A container on this machine that speaks MCP, over HTTP or on its stdin and stdout.

Invariant: its name is known, with a directory, before podman hears of it; so it is removed whatever happens, and
by `left_behind` should this process be killed.
"""

import asyncio
import contextlib
import os
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rollout_sandbox.podman import engine, left_behind
from verifiers.v1.errors import ToolsetError
from verifiers.v1.utils.aio import run_shielded

from opencode_env.tool_backends.connection import Command, Server, Transport, http_connection
from opencode_env.tool_backends.description import BackendFile, BackendServerConfig, host_path
from opencode_env.tool_backends.docker_options import option_words
from opencode_env.tool_backends.program import StdioServer, make_data


@dataclass(frozen=True)
class HttpContainer(Server):
    """A container whose server listens at a port of this machine's loopback."""

    name: str
    url: str
    patient: bool = field(default=True, kw_only=True)

    def transport(self) -> Transport:
        return http_connection(self.url, {}, proxies=False)

    async def failure(self) -> str | None:
        """Quote what it said last, once it has ended."""
        state = await engine.call("inspect", "--format", "{{.State.Running}}", self.name)
        if state.exit_code == 0 and state.stdout.strip() == "true":
            return None
        logs = await engine.call("logs", "--tail", "20", self.name)
        return f"its container has ended; it said: {(logs.stderr + logs.stdout).strip()[-1000:] or 'nothing'}"


@contextlib.asynccontextmanager
async def container(backend: BackendServerConfig, file: BackendFile) -> AsyncIterator[HttpContainer | StdioServer]:
    """Start a container of a `local_docker`.

    Raises:
        ToolsetError: it does not start.
        SandboxError: podman is not installed.
    """
    async with AsyncExitStack() as stack:
        name = f"vf-{uuid.uuid4().hex}"
        directory = await asyncio.to_thread(left_behind.make_directory, name)
        stack.push_async_callback(lambda: run_shielded(_remove(name, directory)))
        await asyncio.to_thread(make_data, directory / "data", backend, file.directory)
        arguments = _arguments(backend, file, directory, name)
        if backend.mcp_transport == "http":
            yield await _listening(backend, name, arguments)
            return
        log = directory / "stderr.log"
        stderr = stack.enter_context(log.open("w"))
        yield StdioServer(Command(["podman", "run", "--interactive", *arguments], os.environ, stderr), log)


def _arguments(backend: BackendServerConfig, file: BackendFile, directory: Path, name: str) -> list[str]:
    # SIGKILL: a server may be a process 1 that ignores everything else, and its removal would wait ten seconds.
    words = ["--name", name, "--pidfile", str(directory / "pid"), "--stop-signal", "KILL", "--stop-timeout", "0"]
    words += ["--http-proxy=false"]
    if backend.mcp_transport == "http":
        words += ["--publish", f"127.0.0.1::{backend.container_port}"]
    words += option_words(file.config.global_docker_options or {})
    volumes = backend.container_volumes or {}
    mounts = {mount.bind: (host_path(host, file.directory), str(mount.mode)) for host, mount in volumes.items()}
    if backend.template_data_path_host is not None:
        mounts[backend.container_template_data_path or "/data"] = (directory / "data", "rw")
    for target, (source, mode) in mounts.items():
        words += ["--volume", f"{source}:{target}:{mode}"]
    assert backend.docker_image is not None
    return [*words, *(backend.docker_run_args or []), backend.docker_image, *(backend.container_command or [])]


async def _listening(backend: BackendServerConfig, name: str, arguments: list[str]) -> HttpContainer:
    answer = await engine.call("run", "--detach", *arguments)
    if answer.exit_code != 0:
        described = engine.start_failure(str(backend.docker_image), answer.exit_code, answer.stderr)
        raise ToolsetError(f"tool backend {backend.backend_name_ref!r}: {described}")
    port = await engine.call("port", name, f"{backend.container_port}/tcp")
    address = port.stdout.strip().splitlines()
    if port.exit_code != 0 or not address:
        reason = await HttpContainer(name, "").failure() or f"podman port: {port.stderr.strip()}"
        raise ToolsetError(f"tool backend {backend.backend_name_ref!r} did not start: {reason}")
    return HttpContainer(name, f"http://127.0.0.1:{address[0].rpartition(':')[2]}/mcp")


async def _remove(name: str, directory: Path) -> None:
    """Remove the container, and then its directory, by which it is remembered."""
    removed = await engine.call("rm", "--force", "--volumes", "--ignore", name)
    if removed.exit_code != 0:
        raise ToolsetError(f"container {name} could not be removed: {removed.stderr.strip()[-500:]}")
    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
