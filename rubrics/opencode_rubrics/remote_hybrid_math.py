"""`RemoteHybridMathRubric`: the rules run inside the rollout's sandbox, where that can be trusted.

Invariant: the verdict is made by programs that the agent could not touch. A container in which the agent is root can
have replaced all of them, so only the bounded answer is taken out of it, and it is verified on the host.

The reference leaves the host over the scorer's standard input alone, after the scorer has said that it is up. A result
counts only with the nonce of its request, so nothing that was printed in advance does.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field
from rollout_sandbox.compat import abilities_of, start_process, starts_processes, supports_users
from rollout_sandbox.confined.config import Bind
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked
from rollout_sandbox.toolbox.pieces import send_in_pieces
from rollout_sandbox.toolbox.scoring import end_agent
from rollout_sandbox.toolbox.workdir import in_workdir
from verifiers.v1.utils.aio import run_shielded

from opencode_rubrics.errors import ScorerLost
from opencode_rubrics.hybrid_math import MathConfig, MathRubric
from opencode_rubrics.math.scorer_bundle import ScorerBundle, ensure_bundle
from opencode_rubrics.math.verdict_programs.in_sandbox import READY
from opencode_rubrics.math.worker_pool import RulesResult, rules_result
from opencode_rubrics.rubric import AnyTrace

logger = logging.getLogger("verifiers.v1.opencode_rubrics.remote_hybrid_math")

_MAX_OUTPUT_BYTES = 8 << 20
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
    "LD_PRELOAD": "",
    "LD_LIBRARY_PATH": "",
}


class RemoteHybridMathConfig(MathConfig):
    """Options of `RemoteHybridMathRubric`."""

    type: Literal["remote-hybrid-math"] = "remote-hybrid-math"
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox of the file that holds the answer, below the work directory unless it is absolute."""
    scorer_timeout: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Seconds for the scorer in the sandbox, start-up included; beyond them the rollout is an error."""


@dataclass(frozen=True)
class _Scorer:
    """Tells how the scorer is started in a sandbox."""

    python: str
    """Its interpreter, absolute or by name."""
    library: str
    """The directory or zip file that holds it."""


class RemoteHybridMathRubric(MathRubric[RemoteHybridMathConfig]):
    """Scores the answer file in the live sandbox, and outside of it where the agent is root."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `reference`; a `ScoringError` also if there is no sandbox."""
        if sandbox is None:
            raise ScoringError('rubric "remote-hybrid-math" needs a live sandbox: use "hybrid-math" to score offline')
        return await super().prepare(task, sandbox)

    async def shared_directories(self) -> Sequence[Bind]:
        """The scorer bundle, for the confined local sandbox to show read-only."""
        bundle = await ensure_bundle()
        return [Bind(bundle.library, bundle.target)]

    async def rule(self, task: vf.TaskData, reference: str, trace: AnyTrace, runtime: vf.Runtime | None) -> RulesResult:
        """The rules' result on the answer file, after the agent's processes were ended."""
        assert runtime is not None
        await end_agent(runtime)
        async with abilities_of(runtime).others_held() or contextlib.nullcontext(runtime) as alone:
            return await self._rule_alone(task, reference, in_workdir(trace, self.config.answer_path), alone)

    async def _rule_alone(self, task: vf.TaskData, reference: str, path: str, runtime: vf.Runtime) -> RulesResult:
        scorer = await self._scorer(task, runtime)
        if scorer is None:
            return await self.rule_on_file(reference, runtime, path, task.prompt_text)
        request = {
            "reference": reference,
            "path": path,
            "max_bytes": self.config.max_answer_bytes,
            "seconds": self.config.timeout_seconds,
            "question": task.prompt_text,
            "unrounded": self.config.accept_unrounded,
        }
        try:
            reply = await _run_scorer(runtime, scorer, request, self.config.scorer_timeout)
        except _CannotStart as error:
            if abilities_of(runtime).trusted_python:
                raise ScoringError(f"the scorer does not start in the local sandbox: {error}") from error
            logger.warning("sandbox %s: no usable Python (%s); verifying on the host", runtime.name, error)
            return await self.rule_on_file(reference, runtime, path, task.prompt_text)
        return _result(reply, self.config.timeout_seconds)

    async def _scorer(self, task: vf.TaskData, runtime: vf.Runtime) -> _Scorer | None:
        """Return where the scorer can run in the sandbox; `None` if nothing in it can be trusted to."""
        if (python := abilities_of(runtime).trusted_python) is not None:
            bundle = await ensure_bundle()
            failure = f"cannot look for {bundle.target}"
            shown = await run_checked(runtime, ["test", "-d", bundle.target], failure, accepted=(0, 1))
            return _Scorer(
                python, bundle.target if shown.exit_code == 0 else await self._uploaded(runtime, bundle, "/tmp")
            )
        if task.agent_user is None or not supports_users(runtime):
            return None
        failure = f"the processes of agent_user {task.agent_user!r} could not be ended"
        ended = await run_checked(runtime, program_argv("kill_user.sh", task.agent_user), failure, error=ScoringError)
        if ended.stdout.strip() == "0" or not starts_processes(runtime):  # root's are not ended
            return None
        bundle = await ensure_bundle()
        try:
            return _Scorer("python3", await self._uploaded(runtime, bundle))
        except (ScoringError, vf.SandboxError) as error:
            # An agent can have filled the disk.
            await require_alive(runtime, "uploading the scorer")
            logger.warning("sandbox %s: verifying on the host: %s", runtime.name, error)
            return None

    async def _uploaded(self, runtime: vf.Runtime, bundle: ScorerBundle, root: str = "/var/lib") -> str:
        """The image's own bundle if it is the same, else one that is uploaded into a fresh directory."""
        directory = f"{root}/opencode-scorer-{secrets.token_hex(8)}"
        digest = await asyncio.to_thread(_digest, bundle.archive)
        found = await run_checked(
            runtime,
            program_argv("scorer_place.sh", bundle.archive_target, digest, directory, owner="opencode_rubrics"),
            f"sandbox {runtime.name!r} has no place for the scorer",
            error=ScoringError,
            advice="its disk is full or read-only",
        )
        if found.stdout.strip() == "held":
            return bundle.archive_target
        archive = f"{directory}/{bundle.archive.name}"
        await send_in_pieces(runtime, bundle.archive, archive)
        return archive


@cache
def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _result(reply: Mapping[str, Any], seconds: float) -> RulesResult:
    """The scorer's result; a `ScoringError` if its verifying process crashed, or the reference is empty."""
    match reply.get("state"):
        case "unusable":
            return RulesResult(False, str(reply["reason"]), place="sandbox")
        case "timed_out":
            found = RulesResult(False, "timed_out", seconds=seconds)
        case "verdict":
            found = rules_result(reply)
        case "no_reference":
            found = rules_result({"no_reference": True})
        case _:
            why = f"math-verify crashed in the sandbox ({reply.get('reason')})"
            raise ScoringError(f"{why}: give the sandbox more memory")
    return replace(found, text=str(reply.get("text", "")), place="sandbox")


class _CannotStart(Exception):
    """The interpreter or a library of the scorer does not work in this sandbox; the message says how it failed."""


async def _run_scorer(
    runtime: vf.Runtime, scorer: _Scorer, request: Mapping[str, Any], timeout: float
) -> Mapping[str, Any]:
    """The scorer's result (see `verdict_programs.in_sandbox`), within `timeout` seconds."""
    start = f"import sys; sys.path.append({scorer.library!r}); from verdict_programs.in_sandbox import main; main()"
    try:
        async with asyncio.timeout(timeout) as limit:
            try:
                process = await start_process(runtime, [scorer.python, "-I", "-S", "-B", "-c", start], _ENV)
            except vf.SandboxError as error:
                await require_alive(runtime, "starting the scorer")
                raise _CannotStart(str(error)) from error
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


async def _converse(runtime: vf.Runtime, process: vf.RuntimeProcess, request: Mapping[str, Any]) -> Mapping[str, Any]:
    nonce = secrets.token_hex(16)
    lines = _Lines(process)
    while (line := await lines.next()) != READY.encode():
        if line is not None:
            continue
        await require_alive(runtime, "starting the scorer")
        raise _CannotStart(await _last_words(process))
    with contextlib.suppress(OSError, vf.SandboxError):
        await process.write(json.dumps({"nonce": nonce, **request}).encode() + b"\n")
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
    """Return how the process ended and the end of what it wrote to standard error, waited for at most 2 seconds."""
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
