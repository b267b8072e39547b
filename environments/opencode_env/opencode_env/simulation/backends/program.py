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
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CallToolResult

from opencode_env.cli_agent.sandbox import require_bubblewrap
from opencode_env.cli_agent.sandbox.bubblewrap import system_arguments
from opencode_env.cli_agent.sandbox.interpreter import interpreter_roots
from opencode_env.simulation.backends.connection import Opening
from opencode_env.simulation.backends.description import BackendServerConfig
from opencode_env.simulation.backends.reading import BackendFile
from opencode_env.simulation.backends.work_directory import host_path, log_tail, work_directory

_APART = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL")
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

    parameters: StdioServerParameters
    stderr: TextIO
    log: Path
    patient: bool = False

    @property
    def opening(self) -> Opening:
        """Starts it."""
        return lambda: stdio_client(self.parameters, self.stderr)

    async def failure(self) -> str | None:
        """What it said, as it does not come up later."""
        return f"its program ended, or does not speak MCP; it said: {log_tail(self.log) or 'nothing'}"

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
            yield StdioServer(_parameters(backend, file.directory, directory / "data"), stderr, log)


def _parameters(backend: BackendServerConfig, base: Path, data: Path) -> StdioServerParameters:
    bubblewrap = require_bubblewrap()
    assert backend.command is not None
    variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(data), "TMPDIR": str(data), "LANG": "C.UTF-8"}
    variables |= backend.env or {}
    settings = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    view = [word for path in _seen(backend, base) for word in ("--ro-bind-try", path, path)]
    own = ["--bind", str(data), str(data), "--remount-ro", "/", "--chdir", str(data)]
    arguments = [*bubblewrap.new_users, *_APART, *system_arguments(), *view, *own, *settings, "--", *backend.command]
    return StdioServerParameters(command=bubblewrap.program, args=arguments)


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
