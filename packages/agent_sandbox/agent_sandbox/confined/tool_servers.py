"""Tool servers of the agent's sandbox, each in a sandbox of its own over the same files.

Invariant: the agent sees of a tool server its port and the files that both can write, and nothing of its processes: not
its environment, which holds the way to the rollout's state, nor its memory. The server imports nothing from those
files.
"""

import asyncio
import contextlib
import sys
from typing import Protocol

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult

PORT_FILE = "MCP_PORT_FILE"
"""The variable that names the file in which a tool server says its port; only tool servers have it."""

_OWN_IMPORTS = ("-P", "-s")
"""Options of Python's: nothing is imported from the directory that it starts in, nor from the user's site."""
_PORT_INSIDE = "/run/tool-server-port"
_STATE_URL = "VF_STATE_URL"
_START_TIMEOUT_S = 120.0
_POLL_S = 0.05


class Place(Protocol):
    """A sandbox, the agent's or that of a tool server."""

    def host_url(self, url: str) -> str: ...

    def original_url(self, url: str) -> str: ...

    async def start_background(self, argv: list[str], env: dict[str, str], log: str) -> None: ...

    async def expose(self, port: int) -> str: ...

    async def read(self, path: str) -> bytes: ...

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult: ...

    async def write(self, path: str, data: bytes) -> None: ...


async def serve_apart(front: Place, apart: Place, argv: list[str], env: dict[str, str], log: str) -> None:
    """Run a tool server in the started sandbox `apart`, and say in `front` at which port it is reached there.

    Raises:
        SandboxError: the server did not say its port in time.
    """
    settings = {**env, PORT_FILE: _PORT_INSIDE}
    if env.get(_STATE_URL):
        settings[_STATE_URL] = apart.host_url(front.original_url(env[_STATE_URL]))
    options = _OWN_IMPORTS if argv[0] == sys.executable else ()  # not by the environment, which its programs inherit
    await apart.start_background([argv[0], *options, *argv[1:]], settings, log)
    url = front.host_url(await apart.expose(await _port(apart, log)))
    await front.write(env[PORT_FILE], url.rpartition(":")[2].encode())


async def _port(apart: Place, log: str) -> int:
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while True:
                with contextlib.suppress(SandboxError, ValueError):
                    return int(await apart.read(_PORT_INSIDE))
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        tail = await apart.run(["tail", "-c", "2000", log], {})
        raise SandboxError(f"the tool server did not say its port: {tail.stdout.strip()}") from None
