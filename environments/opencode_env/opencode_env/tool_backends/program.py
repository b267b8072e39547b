"""A program of this machine that speaks MCP on its stdin and stdout, and the directory that it has.

It runs beside the environment, not in the agent's sandbox, and the agent reaches its tools only; those may read any
path that they are asked for. So it sees the system's programs, this Python, what its command and `reads` name, and no
other file of this machine; it can write a directory of its own. None of the environment's variables, which may hold
keys, are its. All its processes end with it, and with this process, should that be killed; its directory is removed
then by a shell that waits for that.
"""

import asyncio
import contextlib
import functools
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rollout_sandbox.at_exit import remove_at_exit
from rollout_sandbox.confined import require_bubblewrap
from rollout_sandbox.confined.bubblewrap import system_arguments
from verifiers.v1.errors import ToolsetError

from opencode_env.tool_backends.connection import Command, Server, Transport, piped, without_secrets
from opencode_env.tool_backends.description import BackendFile, BackendServerConfig, expanded, host_path
from opencode_env.tool_backends.program_view import search_path, seen_paths

_APART = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


@dataclass(frozen=True)
class StdioServer(Server):
    """A server on the other side of a pipe; its end is its connection's."""

    command: Command
    log: Path
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values that no message shows."""

    def transport(self) -> Transport:
        return piped(self.command)

    async def failure(self) -> str | None:
        """Quote what it said, as it does not come up later."""
        return f"its program ended, or does not speak MCP; {self.words}"

    @property
    def words(self) -> str:
        """What it said on its stderr, and what came first on its stdout, where an MCP message should have been."""
        printed = "".join(f"it printed {line!r} on its stdout; " for line in self.command.printed)
        try:
            said = self.log.read_text(errors="replace")[-1000:].strip()
        except OSError:
            said = ""
        return without_secrets(f"{printed}it said: {said or 'nothing'}", self.secrets)


@contextlib.asynccontextmanager
async def program(backend: BackendServerConfig, file: BackendFile) -> AsyncIterator[StdioServer]:
    """The program of a `local_program`, which starts when it is connected to.

    Raises:
        ToolsetError: its directory cannot be made.
        SandboxError: bubblewrap does not work here.
    """
    async with work_directory(backend, file.directory) as directory:
        log = directory / "stderr.log"
        with log.open("w") as stderr:
            given = backend.env or {}
            values = expanded(given)
            secrets = {name: value for name, value in values.items() if value != given[name]}
            yield StdioServer(_command(backend, values, file.directory, directory / "data", stderr), log, secrets)


def _command(backend: BackendServerConfig, given: Mapping[str, str], base: Path, data: Path, stderr: TextIO) -> Command:
    bubblewrap = require_bubblewrap()
    assert backend.command is not None
    search, reads = search_path(given), [str(host_path(path, base)) for path in backend.reads or []]
    view = [word for path in seen_paths(backend.command, search, reads) for word in ("--ro-bind-try", path, path)]
    own = ["--bind", str(data), str(data), "--remount-ro", "/", "--chdir", str(data)]
    argv = [bubblewrap.program, *bubblewrap.new_users, *_APART, *system_arguments(), *view, *own, "--"]
    # Not as arguments of bubblewrap, which everybody on this machine can read.
    variables = {"PATH": search, "HOME": str(data), "TMPDIR": str(data), "LANG": "C.UTF-8"}
    return Command([*argv, *backend.command], {**variables, **given}, stderr)


@contextlib.asynccontextmanager
async def work_directory(backend: BackendServerConfig, base: Path) -> AsyncIterator[Path]:
    """A fresh directory that only this user can enter, with `data` in it; removed on exit.

    Raises:
        ToolsetError: the template cannot be copied.
    """
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
    likes.

    Raises:
        ToolsetError: the template cannot be copied.
    """
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
