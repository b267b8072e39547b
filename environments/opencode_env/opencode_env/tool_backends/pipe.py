"""The stdin and stdout of a program as the way of an MCP connection, with bounds.

The `mcp` package has one too, but it keeps a line of any length, copies it again with every chunk, and reports each
line that is not a message with a traceback: one answer could stop this process, and every rollout in it.
"""

import asyncio
import contextlib
import logging
import re
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from verifiers.v1.utils.aio import run_shielded

from opencode_env.tool_backends.connection import MAX_ANSWER_BYTES, TOO_LONG

logger = logging.getLogger("verifiers.v1.opencode_env.tool_backends")

_CHUNK_BYTES = 65_536
_END_BYTES = 512
_QUOTED_BYTES = 300
"""Of a line that should have been a message."""
_TURN_LINES = 256
_GRACE_SECONDS = 2.0
"""Between the end of a program's stdin and its own."""
_REAP_SECONDS = 5.0
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*,')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
"""Where servers write the id of an answer; in a text of theirs the quotes would be escaped."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@dataclass(frozen=True)
class Command:
    """A program, the whole of its environment, and where its stderr goes."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    stderr: TextIO
    printed: list[str] = field(default_factory=list)
    """The first line on its stdout, if that was not a message."""


@contextlib.asynccontextmanager
async def piped(command: Command) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the program; it is ended on exit.

    Raises:
        OSError: it cannot be started.
    """
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
            if (lines := lines + 1) % _TURN_LINES == 0:
                await asyncio.sleep(0)  # others' turn: a chunk can hold thousands
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
    # asyncio closes the pipes at the end of its stdout only, which what the program left running can hold.
    process._transport.close()  # type: ignore[attr-defined]
