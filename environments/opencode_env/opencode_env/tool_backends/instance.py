"""One running instance of a backend: connected, checked, and removed at the end.

Invariant: what `starting` has made is gone when it is left, whatever happened in between.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from mcp.types import CallToolResult, Tool
from verifiers.v1.errors import ToolsetError

from opencode_env.tool_backends.connection import Connection, Server
from opencode_env.tool_backends.container import container
from opencode_env.tool_backends.description import BackendServerConfig, Orchestration, StartupCheck
from opencode_env.tool_backends.options import BackendsConfig
from opencode_env.tool_backends.program import StdioServer, program
from opencode_env.tool_backends.reading import BackendFile
from opencode_env.tool_backends.remote import Leftovers, remote_instance, remote_url

logger = logging.getLogger("verifiers.v1.opencode_env.tool_backends")

_TRUSTED_SECONDS = 5.0
"""After an answer: rollouts that start together do not all ask a shared server first."""


@dataclass
class Instance:
    """A backend that works, or has."""

    connection: Connection
    _server: Server
    suspect: bool = False
    """Whether the last call was not answered."""
    _answered: float = field(default_factory=time.monotonic)
    """When it last answered."""

    @property
    def tools(self) -> list[Tool]:
        return self.connection.tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool.

        Raises:
            ToolsetError: it was not answered in time.
        """
        try:
            result = await (self._server.proxy or self.connection.call)(tool, arguments)
        except ToolsetError:
            self.suspect = True
            raise
        self.suspect, self._answered = False, time.monotonic()
        return result

    async def works(self) -> bool:
        """Whether it can be used on; it is asked unless it has answered just now."""
        if self.suspect or time.monotonic() - self._answered > _TRUSTED_SECONDS:
            try:
                await self.connection.probe()
            except ToolsetError:
                return False
            self.suspect, self._answered = False, time.monotonic()
        return self.connection.lives


@contextlib.asynccontextmanager
async def starting(
    backend: BackendServerConfig, file: BackendFile, options: BackendsConfig, session: str, leftovers: Leftovers
) -> AsyncIterator[Instance]:
    """Start an instance; it is removed on exit, or one of the `leftovers`.

    Raises:
        ToolsetError: it did not start, or not in time.
    """
    name = backend.backend_name_ref
    async with AsyncExitStack() as stack:
        server: Server | None = None
        try:
            async with asyncio.timeout(options.start_timeout) as limit:
                started = _server(backend, file, options.call_timeout, session, leftovers)
                server = await stack.enter_async_context(started)
                connection = await _connected(name, server, options.call_timeout)
                stack.push_async_callback(connection.close)
                instance = Instance(connection, server)
                if backend.startup_check_mcp_tool is not None:
                    await check_start(instance, backend.startup_check_mcp_tool)
        except TimeoutError as error:
            if not limit.expired():
                raise
            words = f": {server.words}" if isinstance(server, StdioServer) else ""
            late = f"did not start within {options.start_timeout:g} s (--env.backends.start-timeout){words}"
            raise ToolsetError(f"tool backend {name!r} {late}") from error
        logger.info("tool backend %s started: %d tools", name, len(instance.tools))
        yield instance


def _server(
    backend: BackendServerConfig, file: BackendFile, call_timeout: float, session: str, leftovers: Leftovers
) -> AbstractAsyncContextManager[Server]:
    match backend.orchestration_mode:
        case Orchestration.LOCAL_DOCKER:
            return container(backend, file)
        case Orchestration.LOCAL_PROGRAM:
            return program(backend, file)
        case Orchestration.REMOTE_URL:
            return contextlib.nullcontext(remote_url(backend))
        case Orchestration.REMOTE_HTTP_API:
            return remote_instance(backend, file, call_timeout, session, leftovers)


async def _connected(name: str, server: Server, call_timeout: float) -> Connection:
    while True:
        connection = Connection(name, server.transport, call_timeout)
        try:
            await connection.open()
        except ToolsetError as error:
            if (reason := await server.failure()) is not None:
                raise ToolsetError(f"tool backend {name!r} did not start: {reason}") from error
            if not server.patient:
                raise
            await asyncio.sleep(0.2)
        else:
            return connection


async def check_start(instance: Instance, check: StartupCheck) -> None:
    """Make the start-up check.

    Raises:
        ToolsetError: the server answered with an error, or not at all.
    """
    name = instance.connection.name
    if check.tool_name not in [tool.name for tool in instance.tools]:
        if check.tool_name in ("ping", "list_tools"):
            await instance.connection.probe()
            return
        offered = ", ".join(tool.name for tool in instance.tools) or "none"
        raise ToolsetError(f"start-up check of backend {name!r}: it has no tool {check.tool_name!r}, only {offered}")
    result = await instance.call(check.tool_name, check.arguments)
    if result.is_error:
        said = " ".join(getattr(part, "text", "") for part in result.content)[-500:]
        raise ToolsetError(f"start-up check {check.tool_name!r} of backend {name!r} failed: {said}")
