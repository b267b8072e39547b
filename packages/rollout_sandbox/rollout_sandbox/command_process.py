"""Processes that the SDK of a service opens in a sandbox, each with a mark by which all that it starts is ended."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Protocol

from verifiers.v1.errors import RolloutError, SandboxError
from verifiers.v1.runtimes import RuntimeProcess
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.exchange import COMMAND_ID_VARIABLE
from rollout_sandbox.programs import program_argv

_ROUNDS, _PAUSE_S, _SIGNAL_S = 60, 0.5, 60.0
_LATE_S = 3.0
"""How long is looked for a process whose opening failed, and which may start all the same."""
_CHUNKS = 16
"""Of a stream that are held for whoever reads it."""


class CommandProcess(Protocol):
    """A process as `CommandBackend.open` returns it, with its output as it comes."""

    stdout: AsyncIterator[bytes]
    stderr: AsyncIterator[bytes]

    async def write(self, data: bytes) -> None:
        """Write all of `data` to its stdin, which stays open."""

    async def wait(self) -> int:
        """Return its exit code: -N or 128 + N for a signal, 127 for a program that is missing."""
        ...


Open = Callable[[list[str], dict[str, str], str | None], Awaitable[CommandProcess]]


class CommandProcesses:
    """Opens the processes of one sandbox; what the service raises becomes a `SandboxError`."""

    def __init__(self, name: str, opened: Open) -> None:
        self._name, self._open = name, opened

    async def open(self, argv: list[str], env: dict[str, str], user: str | None) -> "MarkedProcess":
        """Open a process. When that is cancelled or fails, what it may have started is ended first."""
        mark = uuid.uuid4().hex
        opening = asyncio.ensure_future(self._open(argv, {**env, COMMAND_ID_VARIABLE: mark}, user))
        try:
            with self.failing():
                return MarkedProcess(self, await asyncio.shield(opening), mark, user)
        except BaseException:
            with contextlib.suppress(SandboxError):  # the first error says more
                await run_shielded(self.end(mark, user, asyncio.ensure_future(_ended(opening))))
            raise

    async def end(self, mark: str, user: str | None, ended: "asyncio.Future[Any]") -> None:
        """Kill all that has a mark until the process itself, which may be about to start, has `ended`."""
        for _ in range(_ROUNDS):
            await self.signal(mark, user)
            if (await asyncio.wait([ended], timeout=_PAUSE_S))[0]:
                return
        raise SandboxError(f"sandbox {self._name}: a process was killed, and does not end")

    async def signal(self, mark: str, user: str | None, *name: str) -> None:
        """Send a signal to all that has a mark; without a `name` kill it, until none is left."""
        argv = program_argv("remote_end.sh", f"{COMMAND_ID_VARIABLE}={mark}", *name)
        for one in dict.fromkeys((user, None)):  # the sandbox's own user need not see what another runs
            with self.failing():
                async with asyncio.timeout(_SIGNAL_S):
                    code = await _end_of(self._open(argv, {}, one))
            if code != 0:
                raise SandboxError(f"sandbox {self._name} is gone, or does not end a command (exit code {code})")

    @contextlib.contextmanager
    def failing(self, *others: type[Exception]) -> Iterator[None]:
        """Make a `SandboxError` of what the service raises; `others` stay what they are."""
        try:
            yield
        except Exception as error:
            if isinstance(error, (RolloutError, *others)):
                raise
            raise SandboxError(f"sandbox {self._name} failed: {type(error).__name__}: {error}") from error


class MarkedProcess(RuntimeProcess):
    """A process with all that it started, which has its mark."""

    def __init__(self, processes: CommandProcesses, inner: CommandProcess, mark: str, user: str | None) -> None:
        self._processes, self._inner, self._mark, self._user = processes, inner, mark, user
        self._output = _Output(processes, inner.stdout), _Output(processes, inner.stderr)
        self.stdout, self.stderr = self._output
        self._ended = asyncio.ensure_future(inner.wait())

    async def write(self, data: bytes) -> None:
        with self._processes.failing(ConnectionError):  # it reads no more
            await self._inner.write(data)

    async def wait(self) -> int:
        with self._processes.failing():
            return await asyncio.shield(self._ended)

    async def poll(self) -> int | None:
        return await self.wait() if self._ended.done() else None

    async def terminate(self) -> None:
        await self._processes.signal(self._mark, self._user, "TERM")

    async def kill(self) -> None:
        """Kill it and all that it started; nothing of it is left on return."""
        for stream in self._output:
            stream.drop()
        await run_shielded(self._processes.end(self._mark, self._user, self._ended))


class _Output(AsyncIterator[bytes]):
    """Reads a stream in a task of its own, so that it ends, whatever becomes of whoever reads here."""

    def __init__(self, processes: CommandProcesses, stream: AsyncIterator[bytes]) -> None:
        self._processes, self._dropped = processes, False
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS)
        self._reading = asyncio.ensure_future(self._read(stream))

    async def _read(self, stream: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in stream:
                if chunk and not self._dropped:
                    await self._chunks.put(chunk)
        except Exception:
            await self._chunks.put(b"")
            raise
        await self._chunks.put(b"")  # not when it is cancelled: nobody need take what is here then

    async def __anext__(self) -> bytes:
        if chunk := await self._chunks.get():
            return chunk
        self._chunks.put_nowait(b"")
        with self._processes.failing():
            await asyncio.shield(self._reading)
        raise StopAsyncIteration

    def drop(self) -> None:
        """Throw away what is not read yet, and what comes."""
        self._dropped = True
        while not self._chunks.empty():
            self._chunks.get_nowait()
        if self._reading.done():
            self._chunks.put_nowait(b"")


async def _ended(opening: Awaitable[CommandProcess]) -> None:
    try:
        await _end_of(opening)
    except Exception:  # noqa: BLE001 - whatever the service raised
        await asyncio.sleep(_LATE_S)


async def _end_of(opening: Awaitable[CommandProcess]) -> int:
    """Let a process end that nobody reads; its exit code."""

    async def drop(stream: AsyncIterator[bytes]) -> None:
        async for _ in stream:
            pass

    process = await opening
    await asyncio.gather(drop(process.stdout), drop(process.stderr))
    return await process.wait()
