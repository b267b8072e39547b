"""A program of this machine that speaks MCP on its stdin and stdout.

It runs beside the environment, not in the agent's sandbox, and the agent reaches its tools only. It sees this machine's
files read-only and can write a directory of its own; none of the environment's variables, which may hold keys, are
its. All its processes end with it, and with this process, should that be killed.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CallToolResult

from opencode_env.cli_agent.sandbox import require_bubblewrap
from opencode_env.simulation.backends.connection import Opening
from opencode_env.simulation.backends.description import BackendServerConfig
from opencode_env.simulation.backends.reading import BackendFile
from opencode_env.simulation.backends.work_directory import log_tail, work_directory

_APART = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL")


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
            yield StdioServer(_parameters(backend, directory / "data"), stderr, log)


def _parameters(backend: BackendServerConfig, data: Path) -> StdioServerParameters:
    bubblewrap = require_bubblewrap()
    assert backend.command is not None
    variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(data), "TMPDIR": str(data), "LANG": "C.UTF-8"}
    variables |= backend.env or {}
    settings = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    view = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(data), str(data)]
    arguments = [*bubblewrap.new_users, *_APART, *view, "--chdir", str(data), *settings, "--", *backend.command]
    return StdioServerParameters(command=bubblewrap.program, args=arguments)
