"""Scores a rollout by the task's verify commands, in the sandbox where the agent worked.

Invariant: a command that fails or runs out of time is the policy's doing and counts 0 (its code may loop for
ever); a command that could not be run is an error and nothing is scored.
"""

from typing import Literal

import verifiers.v1 as vf
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opencode_rubrics.config import RubricConfig
from opencode_rubrics.registry import register_rubric
from opencode_rubrics.reward_file import prepare_reward_file, read_reward_file
from opencode_rubrics.rubric import AnyTrace, Rubric
from opencode_rubrics.sandbox.alive import require_alive
from opencode_rubrics.sandbox.command import CommandResult, run_command
from opencode_rubrics.sandbox.workdir import workdir_of


class VerifyCommandsConfig(RubricConfig):
    """Options of `VerifyCommandsRubric`."""

    type: Literal["verify-commands"] = "verify-commands"
    command_timeout: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds per verify command; the task's own `verify_timeout` goes before it."""


class _VerifyPlan(BaseModel):
    """What this rubric reads of a task's data, whatever the class of that data."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    verify: list[str] = Field(min_length=1)
    verify_timeout: float | None = None


@register_rubric
class VerifyCommandsRubric(Rubric[VerifyCommandsConfig]):
    """Reward `verify`: the share of verify commands that exit 0, or the number a command wrote.

    Commands run one after another with `sh -c` in the rollout's work directory. If one of them writes a finite number
    to `/logs/verifier/reward.txt`, that is the reward. Results land in `trace.info["verify"]`.
    """

    @vf.reward
    async def verify(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime) -> float:
        """Passed ÷ total of the task's verify commands, or the reward file's number.

        Raises:
            SandboxError: the sandbox was gone before or while scoring.
            TaskError: the task has no verify commands, or the reward file holds no finite number.
        """
        plan = _plan(task)
        timeout = plan.verify_timeout or self.config.command_timeout
        await prepare_reward_file(runtime)
        records = trace.info["verify"] = []
        results: list[CommandResult] = []
        for command in plan.verify:
            result = await run_command(runtime, command, workdir=workdir_of(trace), timeout=timeout)
            results.append(result)
            records.append(result.record())
        failed = [result for result in results if not result.ok]
        if failed:
            # A sandbox that died stays dead, so one probe after the last command covers all of them.
            await require_alive(runtime, f"running verify command {failed[0].command!r}")
        written = await read_reward_file(runtime, command_failed=bool(failed))
        return written if written is not None else (len(results) - len(failed)) / len(results)

    @vf.metric
    async def verify_passed(self, trace: AnyTrace) -> float:
        """How many verify commands exited 0 in time."""
        results = trace.info.get("verify", [])
        return float(sum(result["exit_code"] == 0 and not result["timed_out"] for result in results))

    @vf.metric
    async def verify_total(self, trace: AnyTrace) -> float:
        """How many verify commands ran."""
        return float(len(trace.info.get("verify", [])))


def _plan(task: vf.TaskData) -> _VerifyPlan:
    try:
        return _VerifyPlan.model_validate(task)
    except ValidationError as error:
        raise vf.TaskError(f'rubric "verify-commands" needs a task with verify commands: {error}') from error
