"""Servers of this machine: a program that speaks MCP on its stdin and stdout, and a container that does, or over HTTP.

A program runs beside the environment, not in the agent's sandbox, and the agent reaches its tools only; those may read
any path that they are asked for. So it sees the system's programs, this Python, what its command and `reads` name, and
no other file of this machine; it can write a directory of its own. None of the environment's variables, which may hold
keys, are its. All its processes end with it, and with this process, should that be killed; its directory is removed
then by a shell that waits for that.

A container's name is known, with a directory, before podman hears of it; so it is removed whatever happens, and by
`left_behind.sh` should this process be killed.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rollout_sandbox.at_exit import remove_at_exit
from rollout_sandbox.confined import require_bubblewrap
from rollout_sandbox.confined.bubblewrap import system_arguments
from rollout_sandbox.podman import engine
from verifiers.v1.errors import ToolsetError
from verifiers.v1.utils.aio import run_shielded

from opencode_env.tool_backends.connection import (
    BackendServer,
    ServerProgram,
    Transport,
    http_connection,
    piped,
    without_secrets,
)
from opencode_env.tool_backends.description import (
    BackendFile,
    BackendServerConfig,
    expanded,
    host_path,
    option_words,
)
from opencode_env.tool_backends.program_view import search_path, seen_paths

_APART = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


@dataclass(frozen=True)
class StdioServer(BackendServer):
    """A server on the other side of a pipe; its end is its connection's."""

    command: ServerProgram
    log: Path
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def transport(self) -> Transport:
        return piped(self.command)

    async def failure(self) -> str | None:
        """Quote what it said, as it does not come up later."""
        return f"its program ended, or does not speak MCP; {self.words}"

    @property
    def words(self) -> str:
        """Return what it said on its stderr, and what came first on its stdout, where an MCP message should have
        been."""
        printed = "".join(f"it printed {line!r} on its stdout; " for line in self.command.printed)
        try:
            said = self.log.read_text(errors="replace")[-1000:].strip()
        except OSError:
            said = ""
        return without_secrets(f"{printed}it said: {said or 'nothing'}", self.secrets)


@contextlib.asynccontextmanager
async def program(backend: BackendServerConfig, file: BackendFile) -> AsyncIterator[StdioServer]:
    """The program of a `local_program`, which starts when it is connected to; a `SandboxError` where bubblewrap does
    not work here."""
    async with work_directory(backend, file.directory) as directory:
        log = directory / "stderr.log"
        with log.open("w") as stderr:
            given = backend.env or {}
            values = expanded(given)
            secrets = {name: value for name, value in values.items() if value != given[name]}
            yield StdioServer(_command(backend, values, file.directory, directory / "data", stderr), log, secrets)


def _command(
    backend: BackendServerConfig, given: Mapping[str, str], base: Path, data: Path, stderr: TextIO
) -> ServerProgram:
    bubblewrap = require_bubblewrap()
    assert backend.command is not None
    search, reads = search_path(given), [str(host_path(path, base)) for path in backend.reads or []]
    view = [word for path in seen_paths(backend.command, search, reads) for word in ("--ro-bind-try", path, path)]
    own = ["--bind", str(data), str(data), "--remount-ro", "/", "--chdir", str(data)]
    argv = [bubblewrap.program, *bubblewrap.new_users, *_APART, *system_arguments(), *view, *own, "--"]
    # Not as arguments of bubblewrap, which everybody on this machine can read.
    variables = {"PATH": search, "HOME": str(data), "TMPDIR": str(data), "LANG": "C.UTF-8"}
    return ServerProgram([*argv, *backend.command], {**variables, **given}, stderr)


@contextlib.asynccontextmanager
async def work_directory(backend: BackendServerConfig, base: Path) -> AsyncIterator[Path]:
    """A fresh directory that only this user can enter, with `data` in it; removed on exit. A `ToolsetError` where the
    template cannot be copied."""
    directory = Path(_prefix() + uuid.uuid4().hex)
    directory.mkdir(mode=0o700)
    try:
        await asyncio.to_thread(make_data, directory / "data", backend, base)
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


@functools.cache
def _prefix() -> str:
    """The beginning of the paths of this process's directories; starts the shell that removes them, once."""
    prefix = f"{tempfile.gettempdir()}/vf-backend-{uuid.uuid4().hex}-"
    remove_at_exit(prefix)
    return prefix


def make_data(data: Path, backend: BackendServerConfig, base: Path) -> None:
    """Make the directory `data`: empty, or the template's copy, where everybody may write: a container runs as who it
    likes."""
    if backend.template_data_path_host is None:
        data.mkdir()
        return
    template = host_path(backend.template_data_path_host, base)
    try:
        shutil.copytree(template, data, symlinks=True)
    except (OSError, shutil.Error) as error:
        why = f"{template} cannot be copied: {error}"
        raise ToolsetError(f"tool backend {backend.backend_name_ref!r}: {why}") from error
    for path in (data, *data.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o777 if path.is_dir() else 0o666))


@dataclass(frozen=True)
class HttpContainer(BackendServer):
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
    """Start a container of a `local_docker`; a `ToolsetError` where it does not start, a `SandboxError` without
    podman."""
    async with AsyncExitStack() as stack:
        name = f"vf-{uuid.uuid4().hex}"
        directory = await asyncio.to_thread(engine.make_directory, name)
        stack.push_async_callback(lambda: run_shielded(_remove(name, directory)))
        await asyncio.to_thread(make_data, directory / "data", backend, file.directory)
        arguments = _arguments(backend, file, directory, name)
        if backend.mcp_transport == "http":
            yield await _listening(backend, name, arguments)
            return
        log = directory / "stderr.log"
        stderr = stack.enter_context(log.open("w"))
        yield StdioServer(ServerProgram(["podman", "run", "--interactive", *arguments], os.environ, stderr), log)


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
