"""Programs of an agent's in the confined sandbox: many, one after another, in one sandbox apart from the agent's.

Invariant: the next program starts when every process of the last one has ended and all that it could write is as it was
at the start. Where that cannot be had, it gets a new sandbox, which costs three times a small program.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol

from verifiers.v1.errors import SandboxError

from agent_sandbox.confined.agent_code import Cell, Request, outcome_of
from agent_sandbox.toolbox.agent_programs import NOT_REACHED, ProgramBatch, ProgramEnd, ProgramLimits

WORK_DIRECTORY = "/tmp"
"""Where programs find their files and start, as the cell's work directory."""
_KEPT_BYTES = 64 << 20
_EXECUTABLE = 'chmod u+x -- * && exec "$@"'


class EmptiedCell(Cell, Protocol):
    """A sandbox for programs, one at a time."""

    async def write(self, path: str, data: bytes) -> None: ...

    async def read_answer(self, path: str, max_bytes: int) -> bytes | str: ...

    @property
    def agent_survived(self) -> bool: ...

    def empty(self) -> None: ...


class ConfinedPrograms:
    """Runs programs in cells that `cell` makes; `aclose` leaves no program and no sandbox."""

    def __init__(self, cell: Callable[[], AbstractAsyncContextManager[EmptiedCell]]) -> None:
        self._make = cell
        self._open = AsyncExitStack()
        self._cell: EmptiedCell | None = None

    async def aclose(self) -> None:
        await self._open.aclose()

    async def run(self, batch: ProgramBatch, limits: ProgramLimits) -> list[ProgramEnd]:
        """What the program did with each input, in order."""
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
        cell = self._cell
        for name, data in batch.files.items():
            await cell.write(f"{WORK_DIRECTORY}/{name}", data)
        own = any(word.startswith("./") for word in batch.argv)
        argv = ["sh", "-c", _EXECUTABLE, "program", *batch.argv] if own else list(batch.argv)
        # Not checked: the bounds of a request are for those from inside, and these limits are the host's own.
        limited = Request.model_construct(
            argv=argv, cwd=WORK_DIRECTORY, timeout=seconds, max_output=limits.output_bytes, stdin=given
        )
        done = await outcome_of(cell, argv, limited)
        kept = None
        try:
            if batch.kept:
                kept = await cell.read_answer(f"{WORK_DIRECTORY}/{batch.kept}", _KEPT_BYTES)
            usable = not cell.agent_survived
            if usable:
                await asyncio.to_thread(cell.empty)
        except (SandboxError, OSError):  # the program's own doing
            usable = False
        if not usable:
            self._cell = None
            await self.aclose()
        return ProgramEnd(done["status"], done["out"], done["err"], kept if isinstance(kept, bytes) else None)
