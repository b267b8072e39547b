"""`RemoteHybridMathRubric`: the rules run inside the rollout's sandbox, where that can be trusted.

Invariant: the verdict is made by programs that the agent could not touch. In the confined local sandbox and in a
container whose agent runs as another user those are the sandbox's own. A container in which the agent is root can
have replaced all of them, so only the bounded answer is taken out of it, and it is verified on the host.
"""

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field
from rollout_sandbox.compat import starts_processes, supports_users
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked
from rollout_sandbox.toolbox.pieces import send_in_pieces
from rollout_sandbox.toolbox.processes import TrustedSystem, end_agent, others_held
from rollout_sandbox.toolbox.scoring import ScoringError
from rollout_sandbox.toolbox.workdir import in_workdir

from opencode_rubrics.hybrid_math import MathConfig, MathRubric, Ruling
from opencode_rubrics.math.worker_pool import RulesResult, rules_result
from opencode_rubrics.math.scorer import CannotStart, ScorerLost, ScorerRequest, run_scorer
from opencode_rubrics.math.scorer_bundle import ScorerBundle, ensure_bundle
from opencode_rubrics.rubric import AnyTrace, SharedDirectory

logger = logging.getLogger("verifiers.v1.opencode_rubrics.remote_hybrid_math")


class RemoteHybridMathConfig(MathConfig):
    """Options of `RemoteHybridMathRubric`."""

    type: Literal["remote-hybrid-math"] = "remote-hybrid-math"
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox of the file that holds the answer, below the work directory unless it is absolute."""
    scorer_timeout: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Seconds for the scorer in the sandbox, start-up included; beyond them the rollout is an error."""
    accept_in_box_scoring: bool = False
    """Score in the sandbox even where the agent could have replaced its programs (a container in which it is root).
    False: there the answer is taken out and verified on the host."""


@dataclass(frozen=True)
class _Place:
    """How the scorer is started in a sandbox."""

    python: str
    library: str
    exposed: bool = False
    """Whether an agent that is root there may have replaced its programs, or left something that kills the scorer."""


class RemoteHybridMathRubric(MathRubric[RemoteHybridMathConfig]):
    """Scores the answer file in the live sandbox, and outside of it where the agent is root."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """Nothing; a `ScoringError` also if there is no sandbox."""
        if sandbox is None:
            raise ScoringError('rubric "remote-hybrid-math" needs a live sandbox: use "hybrid-math" to score offline')
        return await super().prepare(task, sandbox)

    async def shared_directories(self) -> Sequence[SharedDirectory]:
        """The scorer bundle, for the confined local sandbox to show read-only."""
        bundle = await ensure_bundle()
        return [SharedDirectory(bundle.library, bundle.target)]

    async def rule(self, task: vf.TaskData, reference: str, trace: AnyTrace, runtime: vf.Runtime | None) -> Ruling:
        """The rules' result on the answer file, after the agent's processes were ended."""
        assert runtime is not None
        await end_agent(runtime)
        async with others_held(runtime) as alone:
            return await self._rule_alone(task, reference, in_workdir(trace, self.config.answer_path), alone)

    async def _rule_alone(self, task: vf.TaskData, reference: str, path: str, runtime: vf.Runtime) -> Ruling:
        place = await self._place(task, runtime)
        if place is None:
            return await self.rule_on_file(reference, runtime, path, task.prompt_text)
        request = ScorerRequest(
            reference,
            path,
            self.config.max_answer_bytes,
            self.config.timeout_seconds,
            task.prompt_text,
            self.config.accept_unrounded,
        )
        try:
            result = await self._asked(runtime, place, request)
        except ScorerLost as error:
            if not place.exposed:
                raise
            logger.warning("sandbox %s: the scorer was lost twice (%s): a score of 0", runtime.name, error)
            return Ruling(RulesResult(False, "scorer_lost"), place="sandbox")
        except CannotStart as error:
            if isinstance(runtime, TrustedSystem):
                raise ScoringError(f"the scorer does not start in the local sandbox: {error}") from error
            logger.warning("sandbox %s: no usable Python (%s); verifying on the host", runtime.name, error)
            return await self.rule_on_file(reference, runtime, path, task.prompt_text)
        return _ruling(result, self.config.timeout_seconds)

    async def _asked(self, runtime: vf.Runtime, place: _Place, request: ScorerRequest) -> Mapping[str, Any]:
        """The scorer's result; where the agent can have killed it, it is asked once more."""
        seconds = self.config.scorer_timeout
        if place.exposed:
            with contextlib.suppress(ScorerLost):
                return await run_scorer(runtime, place.python, place.library, request, seconds)
        return await run_scorer(runtime, place.python, place.library, request, seconds)

    async def _place(self, task: vf.TaskData, runtime: vf.Runtime) -> _Place | None:
        """Where the scorer can run in the sandbox; `None` if nothing in it can be trusted to."""
        if isinstance(runtime, TrustedSystem):
            return await self._in_trusted_system(runtime, runtime.trusted_python)
        others = False
        if task.agent_user is not None and supports_users(runtime):
            failure = f"the processes of agent_user {task.agent_user!r} could not be ended"
            argv = program_argv("kill_user.sh", task.agent_user)
            ended = await run_checked(runtime, argv, failure, error=ScoringError)
            others = ended.stdout.strip() != "0"  # root's are not
        if not (others or self.config.accept_in_box_scoring) or not starts_processes(runtime):
            return None
        bundle = await ensure_bundle()
        try:
            return _Place("python3", await self._uploaded(runtime, bundle), exposed=not others)
        except (ScoringError, vf.SandboxError) as error:
            # An agent can have filled the disk.
            await require_alive(runtime, "uploading the scorer")
            logger.warning("sandbox %s: verifying on the host: %s", runtime.name, error)
            return None

    async def _in_trusted_system(self, runtime: vf.Runtime, python: str) -> _Place:
        bundle = await ensure_bundle()
        failure = f"cannot look for {bundle.target}"
        shown = await run_checked(runtime, ["test", "-d", bundle.target], failure, accepted=(0, 1))
        return _Place(python, bundle.target if shown.exit_code == 0 else await self._uploaded(runtime, bundle, "/tmp"))

    async def _uploaded(self, runtime: vf.Runtime, bundle: ScorerBundle, root: str = "/var/lib") -> str:
        """The image's own bundle if it is the same, else upload it into a fresh directory; the agent's processes have
        ended before."""
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


def _ruling(result: Mapping[str, Any], seconds: float) -> Ruling:
    """The scorer's result; a `ScoringError` if its verifying process crashed, or the reference is empty."""
    state, text = result.get("state"), str(result.get("text", ""))
    if state == "unusable":
        return Ruling(RulesResult(False, str(result["reason"])), place="sandbox")
    if state == "timed_out":
        return Ruling(RulesResult(False, "timed_out", seconds=seconds), text, place="sandbox")
    if state == "verdict":
        return Ruling(rules_result(result), text, place="sandbox")
    if state == "no_reference":
        rules_result({"no_reference": True})
    raise ScoringError(f"math-verify crashed in the sandbox ({result.get('reason')}): give the sandbox more memory")
