"""The streams of commands, which are pipes that the host reads and writes directly, and processes that have them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

from verifiers.v1.runtimes import RuntimeProcess

from rollout_sandbox.confined.channel import Channel

LIMIT_BYTES = 32 << 20
"""The most that the host keeps of a stream that is collected, however long; what is left out is said in the text."""
_COLLECTED_BYTES = 256 << 10
_CHUNK_BYTES = 64 << 10
_PIPE_MAX_BYTES = 1 << 20
"""The most that lies in a pipe when its writer has ended."""


class _Pipe:
    """One end of a pipe on the event loop; owns the descriptor until `close`."""

    _writing = False

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        loop = asyncio.get_running_loop()
        self._watch = loop.add_writer if self._writing else loop.add_reader
        self._unwatch = loop.remove_writer if self._writing else loop.remove_reader
        self._fd: int | None = fd
        self._ready: asyncio.Future[None] | None = None

    async def _until_ready(self, fd: int) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        self._watch(fd, self._wake)
        try:
            await self._ready
        finally:
            if self._fd is not None:
                self._unwatch(fd)

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def close(self) -> None:
        """Close the descriptor and end whoever waits for it; idempotent, on the event loop."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._unwatch(fd)
            os.close(fd)
            self._wake()


class BoundedOutput:
    """The head and the tail of a byte stream, together at most `limit_bytes`."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._part = limit_bytes // 3
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> None:
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


class PipeReader(_Pipe):
    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._output = BoundedOutput()
        self._watch(fd, self._read)

    def _read(self) -> int:
        if self._fd is None:
            return 0
        try:
            data = os.read(self._fd, _COLLECTED_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._output.feed(data)
        else:
            self.close()
        return len(data)

    def finish(self) -> str:
        """Take what its ended writer has left in the pipe, whoever still holds the other end, and return the text."""
        left = _PIPE_MAX_BYTES
        while left > 0 and (count := self._read()) > 0:
            left -= count
        self.close()
        return self._output.text()


class ProcessOutput(_Pipe, AsyncIterator[bytes]):
    """Reads what a process writes, in chunks, until it has ended, whoever else holds the other end of the pipe then."""

    _left: int | None = None
    """Bytes that are still read, once the process has ended: what a pipe can hold."""

    def process_ended(self) -> None:
        """Read what is there, and then no more."""
        self._left = _PIPE_MAX_BYTES
        self._wake()

    async def __anext__(self) -> bytes:
        while (fd := self._fd) is not None and self._left != 0:
            try:
                data = os.read(fd, min(_CHUNK_BYTES, _CHUNK_BYTES if self._left is None else self._left))
            except BlockingIOError:
                if self._left is not None:
                    break
                await self._until_ready(fd)
                continue
            if not data:
                break
            if self._left is not None:
                self._left -= len(data)
            return data
        self.close()
        raise StopAsyncIteration


class ProcessInput(_Pipe):
    _writing = True

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if (fd := self._fd) is None:
                raise BrokenPipeError("stdin is closed")
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                await self._until_ready(fd)


def pipes(count: int) -> list[tuple[int, int]]:
    """Return (read end, write end) pairs, all or none."""
    with contextlib.ExitStack() as undo:
        made = []
        for _ in range(count):
            made.append(os.pipe2(os.O_CLOEXEC))
            for fd in made[-1]:
                undo.callback(os.close, fd)
        undo.pop_all()
    return made


class PipedProcess(RuntimeProcess):
    """One command whose three streams (stdin, stdout, stderr) are pipes of ours, owned from now on."""

    def __init__(self, fds: tuple[int, int, int]) -> None:
        self._stdin = ProcessInput(fds[0])
        self._output = ProcessOutput(fds[1]), ProcessOutput(fds[2])
        self.stdout, self.stderr = self._output
        self._writing = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        """Write all of `data`; a `BrokenPipeError` if the process closed its stdin or ended."""
        async with self._writing:
            await self._stdin.write(data)

    def close_stdin(self) -> None:
        self._stdin.close()

    async def feed(self, data: bytes) -> None:
        """Give it all of its standard input; one that ends, or does not read, misses the rest."""
        with contextlib.suppress(OSError):
            await self.write(data)
        self.close_stdin()

    def close(self) -> None:
        self._stdin.close()
        for source in self._output:
            source.close()


class ConfinedProcess(PipedProcess):
    """One command of the sandbox with its stdin open, started by a request of this `kind` with these fields.

    Exit codes are those of `asyncio.subprocess`: negative for a signal. 127 and 126 mean that the program was not
    found or not executable, with the reason on stderr."""

    def __init__(self, channel: Channel, kind: str, *fields: str | bytes) -> None:
        (stdin_inside, stdin), (out, out_inside), (err, err_inside) = pipes(3)
        try:
            started = channel.submit(kind, *fields, fds=(stdin_inside, out_inside, err_inside))
        except BaseException:
            for fd in (stdin, out, err):
                os.close(fd)
            raise
        super().__init__((stdin, out, err))
        self._channel = channel
        self._command, self._exited = started
        self._exited.add_done_callback(self._on_exit)

    def _on_exit(self, _: object) -> None:
        for source in self._output:
            source.process_ended()

    async def wait(self) -> int:
        return int((await asyncio.shield(self._exited)).text)

    async def poll(self) -> int | None:
        return int(self._exited.result().text) if self._exited.done() else None

    async def terminate(self) -> None:
        """Send SIGTERM to the process and everything it started."""
        if not self._exited.done():
            await self._channel.request("signal", self._command, str(int(signal.SIGTERM)))

    async def kill(self) -> None:
        """Kill the process and everything it started; nothing of it is left on return."""
        if not self._exited.done():
            await self._channel.request("end", self._command)
