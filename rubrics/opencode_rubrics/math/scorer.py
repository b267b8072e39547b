"""Runs the scorer program inside a live sandbox and believes only what it says over the process's own output.

Invariant: the reference leaves the host over the scorer's standard input alone, after the scorer has said that it is
up. A result counts only with the nonce of its request, so nothing that was printed in advance does.
"""

import asyncio
import contextlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import verifiers.v1 as vf
from rollout_sandbox.compat import start_process
from rollout_sandbox.toolbox.checked_run import require_alive
from rollout_sandbox.toolbox.scoring import ScoringError
from verifiers.v1.utils.aio import run_shielded

from opencode_rubrics.math.verdict_programs.in_sandbox import READY

_MAX_OUTPUT_BYTES = 8 << 20
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
    "LD_PRELOAD": "",
    "LD_LIBRARY_PATH": "",
}


class ScorerLost(ScoringError):
    """The scorer started and gave no result: it was killed, or did not finish in time."""


class CannotStart(Exception):
    """The interpreter or a library of the scorer does not work in this sandbox; the message says how it failed."""


@dataclass(frozen=True)
class ScorerRequest:
    """What the scorer is asked."""

    reference: str
    path: str
    max_bytes: int
    seconds: float
    question: str = ""
    unrounded: bool = False


async def run_scorer(
    runtime: vf.Runtime, python: str, library: str, request: ScorerRequest, timeout: float
) -> Mapping[str, Any]:
    """The scorer's result (see `verdict_programs.in_sandbox`), within `timeout` seconds, in a sandbox that can keep a
    process's standard input open. `python` is its interpreter, absolute or by name, `library` the directory or zip file
    that holds it. `CannotStart` if it never came up, `ScorerLost` if it did not finish in time, or gave no result."""
    start = f"import sys; sys.path.append({library!r}); from verdict_programs.in_sandbox import main; main()"
    try:
        async with asyncio.timeout(timeout) as limit:
            process = await _opened(runtime, [python, "-I", "-S", "-B", "-c", start])
            try:
                return await _converse(runtime, process, request)
            finally:
                await run_shielded(_end(process))
    except TimeoutError as error:
        if not limit.expired():
            raise ScoringError(f"the scorer in sandbox {runtime.name!r} failed: {error}") from error
        await require_alive(runtime, "scoring")
        raise ScorerLost(
            f"the scorer did not finish within {timeout:g} s in sandbox {runtime.name!r}: raise "
            "--env.taskset.task.rubric.scorer_timeout, or give the sandbox more CPU"
        ) from error


async def _opened(runtime: vf.Runtime, argv: list[str]) -> vf.RuntimeProcess:
    """The started scorer; tried twice, because verifiers gives a process in a container five seconds to come up."""
    try:
        return await start_process(runtime, argv, _ENV)
    except vf.SandboxError:
        await require_alive(runtime, "starting the scorer")
    try:
        return await start_process(runtime, argv, _ENV)
    except vf.SandboxError as error:
        await require_alive(runtime, "starting the scorer")
        raise CannotStart(str(error)) from error


async def _converse(runtime: vf.Runtime, process: vf.RuntimeProcess, request: ScorerRequest) -> Mapping[str, Any]:
    nonce = secrets.token_hex(16)
    lines = _Lines(process)
    while (line := await lines.next()) != READY.encode():
        if line is not None:
            continue
        await require_alive(runtime, "starting the scorer")
        raise CannotStart(await _last_words(process))
    with contextlib.suppress(OSError, vf.SandboxError):
        await process.write(json.dumps({"nonce": nonce, **asdict(request)}).encode() + b"\n")
        while (answer := await lines.next()) is not None:
            # Lines of others are skipped: what survived the agent may write here, but does not know the nonce.
            with contextlib.suppress(ValueError):
                result = json.loads(answer)
                if isinstance(result, dict) and hmac.compare_digest(str(result.get("nonce")), nonce):
                    return result
    await require_alive(runtime, "scoring")
    raise ScorerLost(
        f"the scorer in sandbox {runtime.name!r} ended without a result: {await _last_words(process)}; it may have "
        "been killed for want of memory"
    )


class _Lines:
    """The lines of a process's output, at most `_MAX_OUTPUT_BYTES` in all."""

    def __init__(self, process: vf.RuntimeProcess) -> None:
        self._stream = process.stdout
        self._data = b""
        self._taken = 0

    async def next(self) -> bytes | None:
        """The next line without its end; `None` when the output ended or became too much."""
        while b"\n" not in self._data and self._taken <= _MAX_OUTPUT_BYTES:
            try:
                chunk = await anext(self._stream)
            except (StopAsyncIteration, OSError, vf.SandboxError):
                return None
            self._taken += len(chunk)
            self._data += chunk
        line, found, self._data = self._data.partition(b"\n")
        return line if found else None


async def _last_words(process: vf.RuntimeProcess) -> str:
    """How the process ended and the end of what it wrote to standard error, waited for at most 2 seconds."""
    words, code = b"", "running"
    try:
        async with asyncio.timeout(2):
            async for chunk in process.stderr:
                words = (words + chunk)[-2000:]
            code = str(await process.wait())
    except (TimeoutError, OSError, vf.SandboxError):
        pass
    return f"exit code {code}: {words.decode(errors='replace').strip()[-500:]}"


async def _end(process: vf.RuntimeProcess) -> None:
    """End the scorer if it still runs; a sandbox that is gone has ended it already."""
    try:
        async with asyncio.timeout(10):
            if await process.poll() is None:
                await process.kill()
            await process.wait()
    except (TimeoutError, OSError, vf.SandboxError):
        pass
    finally:
        if (close := getattr(process, "close", None)) is not None:
            close()
