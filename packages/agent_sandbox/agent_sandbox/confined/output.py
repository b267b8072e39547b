"""A command's output, read from its pipe as it comes and kept in bounded memory.

Invariant: no output, however long, makes the host keep more than `LIMIT_BYTES` per stream; what is left out is said
in the text.
"""

import asyncio
import os

LIMIT_BYTES = 32 << 20
_CHUNK_BYTES = 256 << 10
PIPE_MAX_BYTES = 1 << 20
"""The most that lies in a pipe when its writer has ended."""


class BoundedOutput:
    """The head and the tail of a byte stream, together at most `limit_bytes`."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._part = limit_bytes // 3
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        room = self._part - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._part:  # trimmed in large steps, so that a byte is moved once
            gone = len(self._tail) - self._part
            del self._tail[:gone]
            self._dropped_bytes += gone

    def text(self) -> str:
        """Return what was kept; undecodable bytes become U+FFFD."""
        note = f"\n[… {self._dropped_bytes} bytes left out …]\n".encode() if self._dropped_bytes else b""
        return b"".join((self._head, note, self._tail)).decode(errors="replace")


class PipeReader:
    """Feeds a `BoundedOutput` from a pipe; owns the descriptor until `close`."""

    def __init__(self, fd: int) -> None:
        self.output = BoundedOutput()
        self._fd: int | None = fd
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> int:
        if self._fd is None:
            return 0
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self.output.feed(data)
        else:
            self.close()
        return len(data)

    def finish(self) -> str:
        """Take what its ended writer has left in the pipe, close it and return the text.

        A background process that still holds the other end is not waited for.
        """
        left = PIPE_MAX_BYTES
        while left > 0 and (count := self._read()) > 0:
            left -= count
        self.close()
        return self.output.text()

    def close(self) -> None:
        """Stop reading; idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
