"""A connection to one MCP server, over HTTP or a program's stdin and stdout, with bounds and a task of its own.

Whatever happens at the server's end (it dies, hangs, or talks nonsense) reaches a caller as a
`ToolsetError` or a tool result, never as a cancellation; and `connected` is left when the connection is gone.

What `mcp` and `fastmcp` have for programs keeps a line of any length, copies it again with every chunk, and reports
each line that is not a message with a traceback: one answer could stop this process, and every rollout in it.
"""

import asyncio
import contextlib
import functools
import logging
import re
import ssl
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TextIO

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    TextContent,
    Tool,
    jsonrpc_message_adapter,
)
from verifiers.v1.errors import ToolsetError
from verifiers.v1.utils.aio import run_shielded

from opencode_env.compat import close_pipes
from opencode_env.listed_tools import all_tools, described

logger = logging.getLogger("verifiers.v1.opencode_env.tool_backends")

Transport = AbstractAsyncContextManager[Any]
ToolCaller = Callable[[str, dict[str, Any]], Awaitable[CallToolResult]]

MAX_ANSWER_BYTES = 8 * 1024 * 1024
TOO_LONG = f"The answer is longer than {MAX_ANSWER_BYTES} bytes; ask for less."
"""What the agent reads instead of a longer answer: it may have asked for a file of its own making."""

_TRUSTED_SECONDS = 5.0
"""A server that has answered within these is not asked again: rollouts that start together share one."""
_SUSPICIOUS = (CONNECTION_CLOSED, REQUEST_TIMEOUT, INTERNAL_ERROR)
"""Codes of errors that may be the connection's; any other one is what the server says of the call."""
_SECRET_CHARS = 7
"""A shorter word is not a secret, such as `Bearer`."""

_CHUNK_BYTES = 65_536
_END_BYTES = 512
_QUOTED_BYTES = 300
"""How much is quoted of a line that should have been a message."""
_LINES_IN_ONE_GO = 256
_GRACE_SECONDS = 2.0
"""How long a program may go on once its stdin has ended."""
_REAP_SECONDS = 5.0
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*,')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
"""Where servers write the id of an answer; in a text of theirs the quotes would be escaped."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@dataclass(frozen=True)
class BackendServer:
    """A server that has been started, or runs elsewhere."""

    patient: bool = field(default=False, kw_only=True)
    """Whether it may still be starting when a connection fails."""
    proxy: ToolCaller | None = field(default=None, kw_only=True)
    """Calls a tool where that does not go over the connection."""

    def transport(self) -> Transport:
        """Make what connects to it once."""
        raise NotImplementedError

    async def failure(self) -> str | None:
        """Say why it will never answer, or None as long as it may."""
        raise NotImplementedError


@contextlib.asynccontextmanager
async def connected(name: str, server: BackendServer, call_timeout: float) -> AsyncIterator["BackendConnection"]:
    """Connect to a server and ask for its tools; the connection ends on exit. A `ToolsetError` where it cannot be
    reached, or does not speak MCP."""
    ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def own() -> None:
        """Hold the connection open; the library's task groups then end in this task and in no other."""
        async with Client(server.transport(), cache=None) as client:
            ready.set_result((client, await all_tools(client)))
            await leave.wait()

    owner = asyncio.create_task(own())
    try:
        await asyncio.wait({ready, owner}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise ToolsetError(f"tool backend {name!r} cannot be connected to: {_ending(owner)}")
        client, tools = ready.result()
        yield BackendConnection(name, client, tools, owner, call_timeout, server.proxy)
    finally:
        leave.set()
        if ready.done():
            await asyncio.wait({owner}, timeout=15.0)
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


@dataclass
class BackendConnection:
    """A client of one MCP server that works, or has; see `connected`."""

    name: str
    _client: Client
    tools: list[Tool]
    _owner: asyncio.Task[None]
    _timeout: float
    _proxy: ToolCaller | None
    suspect: bool = False
    """Whether the last call was not answered."""
    _answered: float = field(default_factory=time.monotonic)

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool; what the server has against the call is a result that says so. A `ToolsetError` where it did not
        answer in time, or the connection is gone."""
        try:
            result = await (self._proxy or self._called)(tool, arguments)
        except ToolsetError:
            self.suspect = True
            raise
        self.suspect, self._answered = False, time.monotonic()
        return result

    async def works(self) -> bool:
        """Whether it can be used on; it is asked unless it has answered just now."""
        if self.suspect or time.monotonic() - self._answered > _TRUSTED_SECONDS:
            try:
                await self.probe()
            except ToolsetError:
                return False
            self.suspect, self._answered = False, time.monotonic()
        return not self._owner.done()

    async def _called(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        calling = f"tool {tool!r} of backend {self.name!r}"
        try:
            result: CallToolResult = await self._asked(
                lambda: self._client.call_tool(tool, arguments), calling, self._timeout
            )
        except MCPError as error:
            if error.code in _SUSPICIOUS:
                await self.probe()
            return text_result(error.message)
        return result

    async def probe(self) -> None:
        """Return if the server answers; MCP had a ping once."""
        try:
            await self._asked(self._client.list_tools, f"backend {self.name!r}", 10.0)
        except MCPError as error:
            if error.code in _SUSPICIOUS:
                raise ToolsetError(f"backend {self.name!r} has gone: {error.message}") from error

    async def _asked(self, asking: Callable[[], Any], what: str, seconds: float) -> Any:
        if self._owner.done():
            raise ToolsetError(f"{what} cannot be asked, the connection has ended: {_ending(self._owner)}")
        request = asyncio.ensure_future(asking())
        try:
            await asyncio.wait({request, self._owner}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                return request.result()
            if self._owner.done():
                raise ToolsetError(f"{what} was not answered, the connection has ended: {_ending(self._owner)}")
            raise ToolsetError(f"{what} did not answer within {seconds:g} s")
        except (MCPError, ToolsetError):
            raise
        except Exception as error:  # whatever the library makes of what a server does, or of its end
            raise ToolsetError(f"{what} was not answered: {described(error)}") from error
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)


def _ending(owner: "asyncio.Task[None]") -> str:
    error = None if owner.cancelled() else owner.exception()
    return "it is closed" if error is None else described(error)


def text_result(text: str, *, is_error: bool = True) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def without_secrets(text: str, values: Mapping[str, str]) -> str:
    """Take out of what a server said the values that it was given: it may repeat them."""
    for word in sorted({word for value in values.values() for word in value.split()}, key=len, reverse=True):
        if len(word) >= _SECRET_CHARS:
            text = text.replace(word, "***")
    return text


class AnswerTooLong(httpx2.StreamError):
    """A body is longer than an answer may be; `mcp` makes it the error of the one call."""


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error where it gets too long."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise AnswerTooLong(TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def http_client(
    headers: Mapping[str, str],
    timeout: httpx2.Timeout,
    *,
    proxies: bool = True,
    answered: Callable[[int], None] = lambda status: None,
) -> httpx2.AsyncClient:
    """A client with these headers, for servers on this machine without this machine's `proxies`. It follows no
    redirects: the headers are for one host alone. `answered` gets the status of each answer."""

    async def bound(response: httpx2.Response) -> None:
        answered(response.status_code)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)

    # Not compressed: a few bytes could become any number.
    headers = {**headers, "Accept-Encoding": "identity"}
    hooks = {"response": [bound]}
    return httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=proxies, verify=_tls(), event_hooks=hooks)


@functools.cache
def _tls() -> ssl.SSLContext:
    """The certificates, read once for all clients: that takes tens of milliseconds."""
    return httpx2.create_ssl_context()


@contextlib.asynccontextmanager
async def http_connection(url: str, headers: Mapping[str, str], **options: Any) -> AsyncIterator[Any]:
    """The transport of an MCP connection; the options are those of `http_client`."""
    timeout = httpx2.Timeout(600.0, connect=30.0)  # a call has a limit of its own
    async with (
        http_client(headers, timeout, **options) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


@dataclass(frozen=True)
class ServerProgram:
    """A program, the whole of its environment, and where its stderr goes."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    stderr: TextIO
    printed: list[str] = field(default_factory=list)
    """The first line on its stdout, if that was not a message."""


@contextlib.asynccontextmanager
async def piped(command: ServerProgram) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the program (an `OSError` where it cannot be started); it is ended on exit."""
    process = await asyncio.create_subprocess_exec(
        *command.argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=command.stderr,
        env=command.environment,
        start_new_session=True,
    )
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, said = anyio.create_memory_object_stream[SessionMessage]()
    ends = [asyncio.create_task(_hear(process, heard, command.printed)), asyncio.create_task(_say(process, said))]
    try:
        with incoming, outgoing:
            yield incoming, outgoing
    finally:
        await run_shielded(_ended(process, ends))


async def _hear(
    process: Process, heard: MemoryObjectSendStream[SessionMessage | Exception], printed: list[str]
) -> None:
    """Hand on what the program prints, until nobody wants it; then read on, as else it would wait to be read."""
    assert process.stdout is not None
    junk, first, lines = 0, True, 0
    with heard, contextlib.suppress(anyio.BrokenResourceError):
        async for line, whole in _lines(process):
            if (lines := lines + 1) % _LINES_IN_ONE_GO == 0:
                await asyncio.sleep(0)  # for other tasks: a chunk can hold thousands
            message = _message(line) if whole else _too_long(line)
            if first and message is None and line.strip():
                printed[:] = [line[:_QUOTED_BYTES].decode(errors="replace").strip()]
            first = first and not line.strip()
            if message is not None:
                junk = 0
                await heard.send(SessionMessage(message))
            elif (junk := junk + len(line)) > MAX_ANSWER_BYTES:
                logger.error("a tool backend is ended: it printed %d bytes that are not MCP", junk)
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                break
    while await process.stdout.read(_CHUNK_BYTES):
        pass


async def _lines(process: Process) -> AsyncIterator[tuple[bytes, bool]]:
    """The lines that it prints, and whether each is whole: of one that is too long there are the ends."""
    assert process.stdout is not None
    line, whole = bytearray(), True
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        for index, part in enumerate(chunk.split(b"\n")):
            if index:
                yield bytes(line), whole
                line, whole = bytearray(), True
            line += part
            if len(line) > MAX_ANSWER_BYTES:
                del line[_END_BYTES:-_END_BYTES]
                whole = False
    if line:
        yield bytes(line), whole


def _message(line: bytes) -> JSONRPCMessage | None:
    """The message, or None: many servers also print other things."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


def _too_long(ends: bytes) -> JSONRPCMessage | None:
    """A refusal in place of an answer, if its ends tell what it answers; else its call times out."""
    found = _ID_FIRST.match(ends) or _ID_LAST.search(ends)
    if found is None:
        return None
    return JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=ErrorData(code=INVALID_REQUEST, message=TOO_LONG))


async def _say(process: Process, said: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write what the client sends; a program that is gone says so on its stdout."""
    assert process.stdin is not None
    with said, contextlib.suppress(ConnectionError):
        async for sent in said:
            process.stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _ended(process: Process, ends: Sequence[asyncio.Task[None]]) -> None:
    """Close its stdin, and kill it if it stays."""
    assert process.stdin is not None
    process.stdin.close()
    ending = asyncio.ensure_future(process.wait())
    await asyncio.wait({ending}, timeout=_GRACE_SECONDS)
    if process.returncode is None:
        process.kill()
        await asyncio.wait({ending}, timeout=_REAP_SECONDS)
    for task in (ending, *ends):
        task.cancel()
    await asyncio.gather(ending, *ends, return_exceptions=True)
    close_pipes(process)
