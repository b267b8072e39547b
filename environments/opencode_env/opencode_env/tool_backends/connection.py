"""One MCP client connection, owned by a task of its own.

Invariant: whatever happens at the server's end (it dies, hangs, or talks nonsense) reaches a caller as a
`ToolsetError` or a tool result, never as a cancellation; and `close` returns when the connection is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from mcp import MCPError
from mcp.client import Client
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT, CallToolResult, TextContent, Tool
from verifiers.v1.errors import ToolsetError

Transport = AbstractAsyncContextManager[Any]
"""Of a connection: a pair of streams."""
Call = Callable[[str, dict[str, Any]], Awaitable[CallToolResult]]
"""Calls a tool of a backend."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024
TOO_LONG = f"The answer is longer than {MAX_ANSWER_BYTES} bytes; ask for less."
"""What the agent reads of a longer one: it may have asked for a file of its own making."""

_PROBE_SECONDS = 10.0
_CLOSE_SECONDS = 15.0
_SUSPICIOUS = (CONNECTION_CLOSED, REQUEST_TIMEOUT, INTERNAL_ERROR)
"""Codes of errors that may be the connection's; any other one is what the server says of the call."""


@dataclass(frozen=True)
class Server:
    """What an orchestration has started."""

    patient: bool = field(default=False, kw_only=True)
    """Whether it may still be on its way up when a connection fails."""
    proxy: Call | None = field(default=None, kw_only=True)
    """Calls a tool where that does not go over the connection."""

    def transport(self) -> Transport:
        """A new one to it."""
        raise NotImplementedError

    async def failure(self) -> str | None:
        """Why it will never answer, or None as long as it may."""
        raise NotImplementedError


class Connection:
    """A client of one MCP server, between `open` and `close`."""

    def __init__(self, name: str, opening: Callable[[], Transport], call_timeout: float) -> None:
        self.name = name
        self.tools: list[Tool] = []
        self._opening = opening
        self._timeout = call_timeout
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def open(self) -> None:
        """Connect and ask for the tools.

        Raises:
            ToolsetError: the server cannot be reached, or does not speak MCP.
        """
        ready = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(ready))
        try:
            await asyncio.wait({ready, self._owner}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise ToolsetError(f"tool backend {self.name!r} cannot be connected to: {self._ending()}")
        except BaseException:
            await self.close()
            raise

    async def _own(self, ready: "asyncio.Future[None]") -> None:
        """Hold the connection open; the library's task groups then end in this task and in no other."""
        async with Client(self._opening(), cache=None) as client:
            self.tools = await all_tools(client)
            self._client = client
            ready.set_result(None)
            await self._leave.wait()

    @property
    def lives(self) -> bool:
        """Whether the connection stands, as far as can be told without a request."""
        return self._client is not None and self._owner is not None and not self._owner.done()

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool; what the server has against the call is a result that says so.

        Raises:
            ToolsetError: the server did not answer in time, or the connection is gone.
        """
        calling = f"tool {tool!r} of backend {self.name!r}"
        try:
            result: CallToolResult = await self._asked(
                lambda client: client.call_tool(tool, arguments), calling, self._timeout
            )
        except MCPError as error:
            if error.code in _SUSPICIOUS:
                await self.probe()
            return text_result(error.message)
        return result

    async def probe(self) -> None:
        """Return if the server answers; MCP had a ping once.

        Raises:
            ToolsetError: it does not.
        """
        try:
            await self._asked(lambda client: client.list_tools(), f"backend {self.name!r}", _PROBE_SECONDS)
        except MCPError as error:
            if error.code in _SUSPICIOUS:
                raise ToolsetError(f"backend {self.name!r} has gone: {error.message}") from error

    async def _asked(self, asking: Callable[[Client], Any], what: str, seconds: float) -> Any:
        if not self.lives:
            raise ToolsetError(f"{what} cannot be asked, the connection has ended: {self._ending()}")
        assert self._client is not None
        assert self._owner is not None
        request = asyncio.ensure_future(asking(self._client))
        try:
            await asyncio.wait({request, self._owner}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                return request.result()
            if self._owner.done():
                raise ToolsetError(f"{what} was not answered, the connection has ended: {self._ending()}")
            raise ToolsetError(f"{what} did not answer within {seconds:g} s")
        except (MCPError, ToolsetError):
            raise
        except Exception as error:  # whatever the library makes of what a server does, or of its end
            raise ToolsetError(f"{what} was not answered: {described(error)}") from error
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

    def _ending(self) -> str:
        """Why the owner ended."""
        if self._owner is None or not self._owner.done():
            return "it is closed"
        if self._owner.cancelled():
            return "it was cancelled"
        error = self._owner.exception()
        return "it is closed" if error is None else described(error)

    async def close(self) -> None:
        """End the connection; idempotent."""
        self._leave.set()
        if self._owner is None:
            return
        if self._client is not None:
            await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)
        self._owner.cancel()
        await asyncio.gather(self._owner, return_exceptions=True)


def text_result(text: str, *, is_error: bool = True) -> CallToolResult:
    """A text as the result of a call."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


async def all_tools(client: Client) -> list[Tool]:
    """Every tool that a server lists, page by page."""
    tools: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if (cursor := page.next_cursor) is None:
            return tools


def described(error: BaseException) -> str:
    """What an error says; of a group, what its first says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
