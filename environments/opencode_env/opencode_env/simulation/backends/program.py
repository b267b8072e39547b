"""A program of this machine that speaks MCP on its stdin and stdout.

It runs beside the environment, not in the agent's sandbox, and the agent reaches its tools only; those may read any
path that they are asked for. So it sees the system's programs, this Python, what its command and `reads` name, and no
other file of this machine; it can write a directory of its own. None of the environment's variables, which may hold
keys, are its. All its processes end with it, and with this process, should that be killed.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from mcp.types import CallToolResult

from opencode_env.cli_agent.sandbox import require_bubblewrap
from opencode_env.cli_agent.sandbox.bubblewrap import system_arguments
from opencode_env.cli_agent.sandbox.interpreter import interpreter_roots
from opencode_env.simulation.backends.authentication import expanded, without_secrets
from opencode_env.simulation.backends.connection import Opening
from opencode_env.simulation.backends.description import BackendServerConfig
from opencode_env.simulation.backends.pipe import Command, piped
from opencode_env.simulation.backends.reading import BackendFile
from opencode_env.simulation.backends.work_directory import host_path, log_tail, work_directory

_APART = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_SETTINGS = (
    *(
        "alternatives",
        "ca-certificates",
        "ca-certificates.conf",
        "fonts",
        "group",
        "hosts",
        "ld.so.cache",
        "ld.so.conf",
    ),
    *("ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "pki", "resolv.conf", "services"),
    *("ssl/certs", "ssl/openssl.cnf"),
)
"""What programs want of /etc: names, addresses and certificates, and no secrets."""


@dataclass(frozen=True)
class StdioServer:
    """A server on the other side of a pipe; its end is its connection's."""

    command: Command
    log: Path
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values that no message shows."""
    patient: bool = False

    @property
    def opening(self) -> Opening:
        """Starts it."""
        return lambda: piped(self.command)

    async def failure(self) -> str | None:
        """What it said, as it does not come up later."""
        said = without_secrets(log_tail(self.log), self.secrets)
        return f"its program ended, or does not speak MCP; it said: {said or 'nothing'}"

    def call(self) -> Callable[[str, dict[str, Any]], Awaitable[CallToolResult]] | None:
        """Tools are called over the connection."""
        return None


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
    view = [word for path in _seen(backend, base) for word in ("--ro-bind-try", path, path)]
    own = ["--bind", str(data), str(data), "--remount-ro", "/", "--chdir", str(data)]
    argv = [
        bubblewrap.program,
        *bubblewrap.new_users,
        *_APART,
        *system_arguments(),
        *view,
        *own,
        "--",
        *backend.command,
    ]
    # Not as arguments of bubblewrap, which everybody on this machine can read.
    variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(data), "TMPDIR": str(data), "LANG": "C.UTF-8"}
    return Command(argv, {**variables, **given}, stderr)


def _seen(backend: BackendServerConfig, base: Path) -> list[str]:
    """Paths of this machine that the program sees beside /usr: its tools may show them to the agent."""
    program, *rest = backend.command or [""]
    found = shutil.which(program)
    named = [*([found, os.path.realpath(found)] if found else []), *filter(os.path.isabs, rest)]
    paths = [*interpreter_roots(), sys.prefix, *named, *(str(host_path(path, base)) for path in backend.reads or [])]
    seen = ["/usr"]
    for path in sorted(map(os.path.normpath, filter(os.path.exists, paths))):  # a directory before what is in it
        if not any(Path(path).is_relative_to(shown) for shown in seen):
            seen.append(path)
    return [*(f"/etc/{name}" for name in _SETTINGS), *seen[1:]]
