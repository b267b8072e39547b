"""Agent code in sandboxes of its own: each program of `run-agent-code`, and the programs of a batch, one after another.

The sandbox of a program of `run-agent-code` shows the agent's work directory and home, read-only, one directory that
verify commands share with it, and nothing else of the rollout's. Programs inside ask for it through a socket that is
there only while verify commands run; paths that they name are resolved in the new sandbox, never on the host.
"""

import asyncio
import contextlib
import json
import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path, PurePosixPath
from typing import Protocol

from pydantic import BaseModel, Field, ValidationError
from verifiers.v1.errors import SandboxError

from rollout_sandbox.confined.config import Bind
from rollout_sandbox.confined.directory import remove_entries
from rollout_sandbox.confined.interpreter import base_python
from rollout_sandbox.confined.process import ConfinedProcess
from rollout_sandbox.interface import NOT_REACHED, ProgramBatch, ProgramEnd, ProgramLimits
from rollout_sandbox.programs import program_text

TOOLS = "/.vf/door"
"""Where the sandbox sees the command and its socket, read-only."""
SHARED = "/run/agent-code"
"""What verify commands and agent code can both write."""
HIDDEN = ("/logs", "/run", "/dev")
"""Areas that verify commands keep for themselves."""
_ALWAYS_SHOWN = ("/app", "/home")
_CLIENT = Path(__file__).with_name("agent_code_client.py")
_LENGTH_BYTES = 8
_MAX_REQUEST_BYTES = 32 << 20
_AT_ONCE = 4
_WAITING = 64
"""Programs that run or wait at once; a further one is refused: each is a connection of this process's."""
_END_TIMEOUT_S = 5.0
_START = 'cd -- "$1" 2>/dev/null || cd -- "$2" || exit 125; shift 2; exec "$@"'
_EXECUTABLE = 'chmod u+x -- * && exec "$@"'
_PROGRAMS = "/tmp"
"""Where the programs of a batch find their files and start, as their cell's work directory."""
_KEPT_BYTES = 64 << 20


class ProgramSandbox(Protocol):
    """A sandbox for programs, one at a time."""

    async def exec(self, argv: list[str], env: dict[str, str]) -> ConfinedProcess: ...

    async def end_agent_processes(self) -> None: ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def read_answer(self, path: str, max_bytes: int) -> bytes | str: ...

    @property
    def agent_survived(self) -> bool: ...

    def empty(self) -> None: ...


class ProgramRequest(BaseModel):
    """Holds what a verify command asks for."""

    argv: list[str] = Field(min_length=1)
    cwd: str
    timeout: float = Field(gt=0, le=86_400)
    max_output: int = Field(ge=0, le=8 << 20)
    stdin: str = ""


def shown_areas(areas: Mapping[str, Path], workdir: str) -> list[Bind]:
    """Return what agent code sees of a sandbox with these writable areas; a `SandboxError` if the work directory lies
    where verify commands keep what is theirs."""
    around = [target for target in areas if PurePosixPath(workdir).is_relative_to(target)]
    holds = max(around, key=len)
    if any(PurePosixPath(holds).is_relative_to(hidden) for hidden in HIDDEN):
        raise SandboxError(f"agent code cannot be kept apart in the work directory {workdir!r}: choose one in /app")
    shown = [*_ALWAYS_SHOWN, *([] if holds.startswith(_ALWAYS_SHOWN) else [holds])]
    return [*(Bind(areas[target], target) for target in shown), Bind(areas[SHARED], SHARED, writable=True)]


def _prepare(tools: Path, shared: Path) -> None:
    """Put the command in its place and empty the shared directory, whatever an agent left there (blocking)."""
    shared.chmod(0o755)
    remove_entries(shared)
    (tools / _CLIENT.name).write_bytes(_CLIENT.read_bytes())
    (tools / "drop-links").write_text(program_text("drop_links.sh"))
    command = tools / "run-agent-code"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(base_python())} -I -S {TOOLS}/{_CLIENT.name} "$@"\n')
    command.chmod(0o755)


class AgentCodeServer:
    """Serves `run-agent-code` while verify commands run; `cell` makes a sandbox for one program."""

    tools = TOOLS
    shared = SHARED
    scratch = "/run"

    def __init__(self, cell: Callable[[], AbstractAsyncContextManager[ProgramSandbox]], workdir: str) -> None:
        self._cell = cell
        self._workdir = workdir
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._serving: set[asyncio.Task[None]] = set()
        self.failure: str | None = None

    @contextlib.asynccontextmanager
    async def open(self, tools: Path, shared: Path) -> AsyncIterator["AgentCodeServer"]:
        """Serve at the host directory `tools` until the end of the context, with no program left then."""
        await asyncio.to_thread(_prepare, tools, shared)
        # Through a descriptor, because a socket's path has 107 bytes at most.
        directory = os.open(tools, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            server = await asyncio.start_unix_server(self._accept, f"/proc/self/fd/{directory}/socket")
            (tools / "socket").chmod(0o666)
        finally:
            os.close(directory)
        try:
            yield self
        finally:
            server.close()
            (tools / "socket").unlink(missing_ok=True)
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._serving) >= _WAITING:
            writer.close()
            return
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            # Cancelled at the end: nobody else ends it, and asyncio would log it for each.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                reply = await self._answer(reader)
                if reply is not None:
                    data = json.dumps(reply).encode()
                    writer.write(len(data).to_bytes(_LENGTH_BYTES) + data)
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> Mapping[str, str] | None:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        if length > _MAX_REQUEST_BYTES:
            return {"refused": f"the request is over {_MAX_REQUEST_BYTES} bytes"}
        try:
            request = ProgramRequest.model_validate_json(await reader.readexactly(length))
        except ValidationError as error:
            return {"refused": str(error)}
        run = asyncio.ensure_future(self._run(request))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({run, gone}, return_when=asyncio.FIRST_COMPLETED)
            return run.result() if run.done() else None
        finally:
            run.cancel()
            gone.cancel()
            await asyncio.gather(run, gone, return_exceptions=True)

    async def _run(self, request: ProgramRequest) -> Mapping[str, str]:
        async with self._room:
            try:
                argv = ["sh", "-c", _START, "agent-code", request.cwd, self._workdir, *request.argv]
                async with self._cell() as cell:
                    return await _outcome_of(cell, argv, request.stdin, request.timeout, request.max_output)
            except (SandboxError, OSError) as error:
                self.failure = f"no sandbox for agent code: {error}"
                return {"refused": self.failure}


async def _outcome_of(
    cell: ProgramSandbox, argv: list[str], stdin: str, seconds: float, most: int
) -> Mapping[str, str]:
    """Return what the program did, as data, with `most` bytes of each stream; ending its sandbox is its doing, too."""
    process = await cell.exec(argv, {"HOME": "/tmp", "TMPDIR": "/tmp", "AGENT_CODE_DIR": SHARED})
    too_much = asyncio.Event()
    heads = bytearray(), bytearray()
    sources = zip((process.stdout, process.stderr), heads, strict=True)
    reading = [asyncio.ensure_future(_read(*source, most, too_much)) for source in sources]
    feeding = asyncio.ensure_future(process.feed(stdin.encode(errors="surrogateescape")))
    ended = asyncio.ensure_future(process.wait())
    full = asyncio.ensure_future(too_much.wait())
    try:
        done, _ = await asyncio.wait({ended, full}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        status = "timeout" if not done else _status(ended) if ended.done() else "signal 9"
        with contextlib.suppress(SandboxError):
            # What the program left running may hold its output open.
            await cell.end_agent_processes()
            await asyncio.wait(reading, timeout=_END_TIMEOUT_S)
    finally:
        for task in (*reading, full, feeding, ended):
            task.cancel()
        await asyncio.gather(*reading, full, feeding, ended, return_exceptions=True)
    out, err = (head[:most].decode(errors="replace") for head in heads)
    return {"status": status, "out": out, "err": err}


def _status(ended: "asyncio.Future[int]") -> str:
    if ended.exception() is not None:
        return "signal 9"
    code = ended.result()
    return f"signal {-code}" if code < 0 else f"exit {code}"


async def _read(source: AsyncIterator[bytes], head: bytearray, most: int, too_much: asyncio.Event) -> None:
    async for block in source:
        head += block
        if len(head) > most:
            too_much.set()
            return


class ConfinedPrograms:
    """Runs batches of programs in cells that `cell` makes; `aclose` leaves no program and no sandbox.

    The next program starts when every process of the last one has ended and all that it could write is as it was at the
    start. Where that cannot be had, it gets a new sandbox, which costs three times a small program.
    """

    def __init__(self, cell: Callable[[], AbstractAsyncContextManager[ProgramSandbox]]) -> None:
        self._make = cell
        self._open = AsyncExitStack()
        self._cell: ProgramSandbox | None = None

    async def aclose(self) -> None:
        await self._open.aclose()

    async def run(self, batch: ProgramBatch, limits: ProgramLimits) -> list[ProgramEnd]:
        started = time.monotonic()
        ends = []
        for given in batch.inputs:
            left = limits.total_seconds - (time.monotonic() - started)
            seconds = min(limits.seconds, left)
            ends.append(await self._run(batch, given, seconds, limits) if left > 0 else ProgramEnd(NOT_REACHED))
        return ends

    async def _run(self, batch: ProgramBatch, given: str, seconds: float, limits: ProgramLimits) -> ProgramEnd:
        if self._cell is None:
            self._cell = await self._open.enter_async_context(self._make())
            await asyncio.to_thread(self._cell.empty)  # the next ones shall find no less
        cell = self._cell
        for name, data in batch.files.items():
            await cell.write(f"{_PROGRAMS}/{name}", data)
        own = any(word.startswith("./") for word in batch.argv)
        argv = ["sh", "-c", _EXECUTABLE, "program", *batch.argv] if own else list(batch.argv)
        done = await _outcome_of(cell, argv, given, seconds, limits.output_bytes)
        kept = None
        try:
            if batch.kept:
                kept = await cell.read_answer(f"{_PROGRAMS}/{batch.kept}", _KEPT_BYTES)
            usable = not cell.agent_survived
            if usable:
                await asyncio.to_thread(cell.empty)
        except (SandboxError, OSError):  # the program's own doing
            usable = False
        if not usable:
            self._cell = None
            await self.aclose()
        return ProgramEnd(done["status"], done["out"], done["err"], kept if isinstance(kept, bytes) else None)
