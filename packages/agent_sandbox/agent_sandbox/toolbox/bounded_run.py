"""Runs a program in the sandbox without letting its output fill the host's memory.

Invariant: what is kept of a program's output is bounded while it streams, in every sandbox of this machine. verifiers'
local containers collect whatever comes, so there the engine's client is read here; other sandboxes bound it themselves.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

import verifiers.v1 as vf
from verifiers.v1.utils.aio import run_shielded

from agent_sandbox.verifiers_040 import exec_command

LIMIT_BYTES = 8 << 20
"""The most that is kept of each stream; a program that prints more is given up, with the exit code of a SIGKILL."""

_KILLED = 137
_CHUNK_BYTES = 1 << 16


async def run_bounded(runtime: vf.Runtime, argv: Sequence[str], env: Mapping[str, str]) -> vf.ProgramResult:
    """The result of `argv` in the sandbox.

    Raises:
        SandboxError: the sandbox or its engine failed.
    """
    client = exec_command(runtime, dict(env))
    if client is None:
        return await runtime.run(list(argv), dict(env))
    return await _collected([*client, *argv])


async def _collected(command: Sequence[str]) -> vf.ProgramResult:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        try:
            async with asyncio.TaskGroup() as group:
                heads = [group.create_task(_head(stream)) for stream in (process.stdout, process.stderr)]
        except* TooMuchOutput:
            said = f"ended because it printed over {LIMIT_BYTES} bytes"
            result = vf.ProgramResult(exit_code=_KILLED, stdout="", stderr=said)
        else:
            code = await process.wait()
            result = vf.ProgramResult(exit_code=code, stdout=heads[0].result(), stderr=heads[1].result())
        return result
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await run_shielded(_reaped(process))


async def _reaped(process: asyncio.subprocess.Process) -> None:
    """Wait for a killed client; what is left in its pipes is dropped as it is read."""
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_CHUNK_BYTES):
            pass
    await process.wait()


class TooMuchOutput(Exception):
    """A stream is over the limit."""


async def _head(stream: asyncio.StreamReader) -> str:
    """All of a stream's text.

    Raises:
        TooMuchOutput: once it is over the limit.
    """
    data = bytearray()
    while block := await stream.read(_CHUNK_BYTES):
        data += block
        if len(data) > LIMIT_BYTES:
            raise TooMuchOutput
    return data.decode(errors="replace")
