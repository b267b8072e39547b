"""What is left of a world's server that died: its last words, and its port.

The port is kept until the rollout is over. Without that verifiers asks for three minutes whether the server of a
rollout's own is up, and the system may give the port to another rollout's world while this one's programs still call.
"""

import asyncio
import contextlib
from pathlib import Path


def last_words(log: Path | None) -> str:
    """The end of what a server printed, behind a colon; nothing where that cannot be read any more."""
    if log is None:
        return ""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 1000))
        return f": {said}" if (said := file.read().decode(errors="replace").strip()) else ""
    return ""


class RefusingServer:
    """Answers whoever comes that nobody is there."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        """Take the port over; where another program was faster it is left to that."""
        with contextlib.suppress(OSError):
            self._server = await asyncio.start_server(_refuse, "127.0.0.1", port)

    def close(self) -> None:
        """Leave the port; idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(5.0):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
    finally:
        writer.close()
