"""The host's side of the process that reads what an agent or its tests made (`reading_process`).

This process passes bytes on and reads bounded replies. The other one ends with its context, and all that it started.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rollout_sandbox.errors import ScoringError
from verifiers.v1.utils.aio import run_shielded

from opencode_rubrics.errors import ReaderError
from opencode_rubrics.swe.file_tree import TreeError
from opencode_rubrics.swe.reading_process import CPU_SECONDS, MEMORY_BYTES, pack

# Only the packages' names: what they export needs libraries that take a second to be imported.
_START = """
import sys, types
package = types.ModuleType("opencode_rubrics")
package.__path__ = [sys.argv[1]]
sys.modules["opencode_rubrics"] = package
from opencode_rubrics.swe.reading_process import main
main(int(sys.argv[2]))
"""


class ReadingProcess:
    """The running process; made by `reader`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, call: str, **content: Any) -> dict[str, Any]:
        """The result of a method of `reading_process.ChangeReader`; a `TreeError` if what was given is refused, a
        `ScoringError` if the package of a parser lacks what the row needs, a `ReaderError` if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(pack({"call": call}, content))
            await self._process.stdin.drain()
            head = json.loads(await self._process.stdout.readuntil(b"\n"))
            if sum(head["blobs"].values()) > 128 << 20:
                raise ReaderError("what was read of it is too large")
            blobs = {name: await self._process.stdout.readexactly(size) for name, size in head["blobs"].items()}
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            limits = f"its CPU time or {MEMORY_BYTES >> 30} GiB of memory"
            raise ReaderError(f"it could not be read ({call}) within {limits}, or is too large") from error
        if "refused" in head:
            raise TreeError(head["refused"])
        if "broken" in head:
            raise ScoringError(f"the parser of its logs failed: {head['broken']}")
        return {**head["given"], **blobs}


@asynccontextmanager
async def reader(cpu_seconds: int = CPU_SECONDS) -> AsyncIterator[ReadingProcess]:
    """A process that reads, for as long as the body."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parents[1]), str(cpu_seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=64 << 20,
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )
    try:
        yield ReadingProcess(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await run_shielded(process.wait())
