"""Scores a rollout by the task's verify commands, in the sandbox where the agent worked.

Invariant: a command that fails or runs out of time is the policy's doing and counts 0; one that could not be run, or
agent code that could not be kept apart from it, is an error and nothing is scored.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

import verifiers.v1 as vf
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.told import task_name
from rollout_sandbox.toolbox.checked_run import require_alive
from rollout_sandbox.toolbox.command import CommandResult, run_command
from rollout_sandbox.toolbox.scoring_home import REWARD_PATH, ScoringHome, scoring_home
from rollout_sandbox.toolbox.workdir import workdir_of

from opencode_rubrics.reward_file import BoundedRewardConfig, read_reward_file
from opencode_rubrics.rubric import AnyTrace, Rubric

logger = logging.getLogger("verifiers.v1.opencode_rubrics.verify_commands")

REWARD_FILE_KEY = "reward_file"
"""Where `trace.info` says why a reward file was not taken."""

UNREADY_KEY = "verify_unready"
"""Where `trace.info` says why no verify command ran."""


class VerifyCommandsConfig(BoundedRewardConfig):
    """Options of `VerifyCommandsRubric`."""

    type: Literal["verify-commands"] = "verify-commands"
    command_timeout: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds per verify command; the task's own `verify_timeout` goes before it."""
    reward_file: bool = False
    """Take the reward from the number that a verify command writes to `/logs/verifier/reward.txt`, instead of counting
    the commands that pass. Only for commands that run no code of the agent's but through `run-agent-code`: whatever
    else runs in them can write there, too."""

    @model_validator(mode="after")
    def _check_file(self) -> Self:
        if not self.reward_file and (self.reward_min, self.reward_max) != (0.0, 1.0):
            raise ValueError("reward_min and reward_max bound the reward file: set reward_file = true with them")
        return self


class VerifyPlan(BaseModel):
    """Holds the commands of one task and how long each may take."""

    model_config = ConfigDict(frozen=True)

    verify: list[Annotated[str, StringConstraints(pattern=r"\S")]] = Field(min_length=1)
    """An empty command would always pass."""
    verify_timeout: float | None = None


class VerifyCommandsRubric(Rubric[VerifyCommandsConfig]):
    """Reward `verify`: the share of verify commands that exit 0, or with `reward_file` the number that one wrote.

    They run one after another with `sh -c` in the work directory, in a home of their own (see `scoring_home`), with
    `run-agent-code` on their path. Results land in `trace.info["verify"]`.
    """

    version = "1"

    def commands(self, task: vf.TaskData) -> Sequence[str]:
        """The shell commands of a task; a subclass may make them from what else the task holds."""
        found: Sequence[str] = getattr(task, "verify", None) or ()
        return found

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `plan`; a `TaskError` if the task has no verify commands."""
        found = {"verify": self.commands(task), "verify_timeout": getattr(task, "verify_timeout", None)}
        try:
            return {"plan": VerifyPlan.model_validate(found)}
        except ValidationError as error:
            raise vf.TaskError(f'rubric "verify-commands" needs a task with verify commands: {error}') from error

    @vf.reward
    async def verify(self, task: vf.TaskData, plan: VerifyPlan, trace: AnyTrace, runtime: vf.Runtime) -> float:
        """Passed ÷ total, or the reward file's number. A `ScoringError` if agent code cannot be kept apart here."""
        workdir = self.directory(trace)
        exposed = task.agent_user in (None, "root", "0")
        async with scoring_home(runtime, workdir, exposed=exposed) as home:
            if home.problem and self.config.reward_file:
                return explained(trace, f"/logs/verifier cannot be made new: {home.problem}")
            if home.obstacle:
                # What the agent left made it so: very many links, or a full disk that ends what adds to it.
                return explained(trace, f"what the agent left cannot be made ready: {home.obstacle}", UNREADY_KEY)
            results = await self.run(plan, trace, runtime, home, workdir)
        if home.failure:
            raise ScoringError(f"verify commands run agent code, and it could not be kept apart: {home.failure}")
        return await self.reward(task, trace, runtime, home, results)

    def longest(self, task: vf.TaskData) -> float:
        """Every command may take its whole time."""
        return len(self.commands(task)) * (getattr(task, "verify_timeout", None) or self.config.command_timeout)

    def directory(self, trace: AnyTrace) -> str:
        """The directory in which the commands run."""
        return workdir_of(trace)

    async def reward(
        self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime, home: ScoringHome, results: list[CommandResult]
    ) -> float:
        """The reward for what the commands did, after the last of them."""
        if self.config.reward_file:
            if not home.reward_file:
                return explained(trace, f"no verify command wrote {REWARD_PATH}")
            written = await read_reward_file(runtime, self.config.reward_min, self.config.reward_max)
            return explained(trace, written.problem) if written.problem else written.reward
        if home.reward_file:
            # Not the share of commands that pass, either: those that write a reward as a rule always exit 0.
            return explained(
                trace,
                f"{REWARD_PATH} was written, but nobody asked for it: a reward of 0. If the row means it, its rubric "
                'is {"type": "verify-commands", "reward_file": true}, or --env.taskset.task.rubric says so',
            )
        return sum(result.ok for result in results) / len(results)

    async def run(
        self, plan: VerifyPlan, trace: AnyTrace, runtime: vf.Runtime, home: ScoringHome, workdir: str
    ) -> list[CommandResult]:
        """Results of all commands, recorded as they come."""
        records = trace.info["verify"] = []
        results: list[CommandResult] = []
        for command in plan.verify:
            result = await run_command(
                runtime,
                command,
                workdir=workdir,
                timeout=plan.verify_timeout or self.config.command_timeout,
                environment=home.environment,
                tools=home.tools,
                shell=home.shell,
            )
            results.append(result)
            records.append(result.record())
        failed = [result for result in results if not result.ok]
        if failed:
            # A sandbox that died stays dead, so one probe after the last command covers all of them.
            await require_alive(runtime, f"running verify command {failed[0].command!r}")
        return results

    @vf.metric
    async def verify_passed(self, trace: AnyTrace) -> float:
        results = trace.info.get("verify", [])
        return float(sum(result["exit_code"] == 0 and not result["timed_out"] for result in results))

    @vf.metric
    async def verify_total(self, trace: AnyTrace) -> float:
        return float(len(trace.info.get("verify", [])))


_NO_PROGRAM = re.compile(r"No module named|command not found|: not found\b")


def commands_without_program(trace: AnyTrace) -> list[str]:
    """The verify commands of a rollout that seem to lack a program or a module, each with the end of its output: exit
    code 126 or 127, or a failure that says so, unless that may be of the agent's own code. Whoever wrote the row is to
    hear of it: its agents earn 0."""
    found = [CommandResult(**record) for record in trace.info.get("verify", [])]
    return [
        f"verify command {result.command[:200]!r} seems to lack a program or module ({result.ending()}); "
        "install it for the system that sandboxes show (apt-get), or name an image that has it"
        for result in found
        if result.exit_code in (126, 127)
        or (
            not (result.ok or "run-agent-code" in result.command)
            and any(map(_NO_PROGRAM.search, (result.stderr, result.stdout)))
        )
    ]


def explained(trace: AnyTrace, problem: str, key: str = REWARD_FILE_KEY) -> float:
    """Say on the trace and in the log why there is no reward, which may be the row's own mistake; 0.0."""
    trace.info[key] = problem
    logger.warning("task %s: %s", task_name(trace.task.data), problem)
    return 0.0
