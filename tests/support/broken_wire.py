"""A TCP proxy between an agent and the interception server that breaks the delivery of answers."""

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

_MODEL_CALL = b"/chat/completions"
_CONNECTION = re.compile(rb"\r\nconnection: [^\r]*", re.IGNORECASE)


IMPATIENT = {"provider": {"intercepted": {"options": {"headerTimeout": 8000, "chunkTimeout": 2000}}}}
"""OpenCode's configuration with which it gives a silent connection up early, where answers come at once."""


class End(StrEnum):
    """What becomes of a connection whose answer was delivered in part."""

    CLOSED = "closed"
    RESET = "reset"
    STALLED = "stalled"
    """It stays open and silent until the agent closes it."""


@dataclass(frozen=True)
class Break:
    """How the delivery of one answer fails."""

    at: int | float = 0.0
    """Bytes of the response that arrive, its head included: a count (negative: from the end), or a share of it."""
    end: End = End.CLOSED
    body: bool = False
    """Whether `at` counts in the body instead, behind the whole head."""
    early: bool = False
    """The connection ends as soon as the server has the request."""
    unsent: bool = False
    """The server never gets the request."""

    def delivered(self, response: bytes) -> bytes:
        """The part of a response that arrives."""
        head = response.index(b"\r\n\r\n") + 4 if self.body else 0
        size = len(response) - head
        count = int(self.at * size) if isinstance(self.at, float) else self.at if self.at >= 0 else size + self.at
        assert 0 <= count < size, f"{self} of {size} bytes"
        return response[: head + count]


@dataclass
class BrokenWire:
    """Breaks every other model call on its way, as the list says, and delivers the one in between."""

    target: str
    breaks: list[Break]
    url: str = ""
    asked: list[bytes] = field(default_factory=list)
    """Bodies of the model calls that the agent sent."""
    broken: int = 0
    """Deliveries that were broken so far."""
    answers: list[bytes] = field(default_factory=list)
    """Whole responses that the server gave to model calls."""
    _whole: bool = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one request of one connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
            request = head + await reader.readexactly(int(size[1]) if size else 0)
            planned = None
            if _MODEL_CALL in head.split(b"\r\n", 1)[0]:
                planned = self._next()
                self.asked.append(request.removeprefix(head))
            if planned is None or not planned.unsent:
                await self._answer(request, reader, writer, planned)
        writer.close()

    def _next(self) -> Break | None:
        self._whole = not self._whole and bool(self.breaks)
        return self.breaks.pop(0) if self._whole else None

    async def _answer(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, planned: Break | None
    ) -> None:
        parts = urlsplit(self.target)
        from_server, to_server = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            head, _, body = request.partition(b"\r\n\r\n")
            to_server.write(_CONNECTION.sub(b"", head) + b"\r\nConnection: close\r\n\r\n" + body)
            await to_server.drain()
            if planned is not None and planned.early:
                self.broken += 1
                return
            response = await from_server.read()
        finally:
            to_server.close()
        if planned is None:
            writer.write(response)
            await writer.drain()
            return
        self.answers.append(response)
        self.broken += 1
        writer.write(planned.delivered(response))
        await writer.drain()
        if planned.end is End.STALLED:
            await reader.read()
        elif planned.end is End.RESET:
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@asynccontextmanager
async def broken_wire(target: str, breaks: Sequence[Break]) -> AsyncIterator[BrokenWire]:
    """A wire to the server at `target`; agents are given its `url`."""
    wire = BrokenWire(target, list(breaks))
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0, limit=1 << 26)
    port = server.sockets[0].getsockname()[1]
    wire.url = f"http://127.0.0.1:{port}"
    try:
        yield wire
    finally:
        server.close()
