"""One call of the `podman` program on this machine.

Invariant: cancelled, a call has ended before the cancellation goes on: asked to first, so that podman leaves its
storage whole.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from verifiers.v1.errors import SandboxError
from verifiers.v1.utils.aio import run_shielded

from opencode_env.cli_agent.sandbox.output import BoundedOutput

_GRACE_S = 10.0
_CHUNK_BYTES = 64 << 10


@dataclass(frozen=True)
class Answer:
    """What a call printed, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str


async def start(argv: Sequence[str], stdin: int, stdout: int, stderr: int) -> asyncio.subprocess.Process:
    """Start `podman` with `argv`, in a session of its own so that a Ctrl-C at the terminal does not reach it.

    Raises:
        SandboxError: podman is not installed, or the arguments are too long for this machine.
    """
    try:
        return await asyncio.create_subprocess_exec(
            "podman", *argv, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
    except FileNotFoundError as error:
        raise SandboxError(
            "podman is not installed on this machine: install it (apt-get install podman), or choose another runtime "
            "(--env.agent.runtime.type)"
        ) from error
    except OSError as error:
        raise SandboxError(f"podman {argv[0]} could not be started: {error.strerror or error}") from error


async def call(*argv: str) -> Answer:
    """Run `podman` to its end.

    Raises:
        SandboxError: podman could not be started.
    """
    pipe = asyncio.subprocess.PIPE
    process = await start(argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        stdout, stderr = await asyncio.gather(_text(process.stdout), _text(process.stderr))
        return Answer(await process.wait(), stdout, stderr)
    except BaseException:
        await run_shielded(finish(process))
        raise


async def _text(stream: asyncio.StreamReader | None) -> str:
    output = BoundedOutput()
    while stream is not None and (data := await stream.read(_CHUNK_BYTES)):
        output.feed(data)
    return output.text()


async def finish(process: asyncio.subprocess.Process) -> None:
    """End a call that is still running, by force if it does not go within ten seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
