"""The task behind `run_rollout`: setup and verify commands in `/home/user`, the agent in `workdir` below it.

Invariant: the directories mean what they did in OpenEnv's `opencode_env`; the place of the reward is made after the
agent.
"""

from dataclasses import asdict
from typing import Any, Literal

import verifiers.v1 as vf
from agent_sandbox.toolbox.command import CommandResult
from opencode_env.taskset.config import OpenCodeTaskConfig
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_env.taskset.task import OpenCodeTask
from opencode_rubrics import AnyTrace, Rubric, VerifyCommandsConfig, require_alive, run_checked, run_command

from opencode_openenv.files import left_files
from opencode_openenv.scoring import RunRolloutRubric
from opencode_openenv.spec import RolloutSpec

HOME = "/home/user"
WORKDIR = f"{HOME}/workdir"
SETUP_RECORD = "setup"
"""Key in a trace's `info`: what each setup command did."""
FILES_RECORD = "files"
"""Key in a trace's `info`: the files that the agent left, as `LeftFiles` has them."""

_RUBRIC = RunRolloutRubric(VerifyCommandsConfig())


class RolloutTaskData(OpenCodeTaskData):
    """The task of one call."""

    kind: Literal["run_rollout"] = "run_rollout"
    reward_bounds: tuple[float, float] | None = None
    """The least and the most that the reward file may hold; None = any number."""


class RolloutTask(OpenCodeTask):
    """One call's task; it belongs to no taskset."""

    data: RolloutTaskData

    @classmethod
    def of(cls, spec: RolloutSpec) -> "RolloutTask":
        """The task that a caller describes."""
        data = RolloutTaskData(
            id=spec.task_id or None,
            prompt=spec.instruction,
            workdir=WORKDIR,
            image=spec.template or None,
            setup=spec.setup,
            setup_timeout=spec.command_timeout_s,
            verify=spec.verify,
            verify_timeout=spec.command_timeout_s,
            reward_bounds=spec.reward_bounds,
            timeout=vf.TaskTimeout(agent=spec.agent_timeout_s),
        )
        return cls(data, OpenCodeTaskConfig())

    @property
    def rubric(self) -> Rubric[Any]:
        """The one rubric of all calls; it holds nothing that would have to be torn down."""
        return _RUBRIC

    async def setup(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        """Make the directories and run the setup commands in order, each recorded.

        Raises:
            TaskError: a command failed or ran out of time.
            SandboxError: the sandbox is gone.
        """
        await run_checked(runtime, ["mkdir", "-p", "--", WORKDIR], f"{WORKDIR} cannot be made", error=vf.TaskError)
        records = trace.info[SETUP_RECORD] = []
        timeout = self.data.setup_timeout or self.config.setup_timeout
        for command in self.data.setup:
            result = await run_command(runtime, command, workdir=HOME, timeout=timeout, environment={"HOME": HOME})
            records.append(result.record())
            if not result.ok:
                await require_alive(runtime, f"running setup command {command!r}")
                raise vf.TaskError(_failed_setup(result))

    async def score(self, trace: AnyTrace, runtime: vf.Runtime | None = None, deployment: Any = None) -> None:
        """Run the verify commands, then keep the files of the work directory.

        Raises:
            TaskError: the commands could not be run.
            SandboxError: the sandbox is gone.
        """
        await super().score(trace, runtime, deployment)
        if runtime is not None and trace.stop_condition != "setup_timeout":
            trace.info[FILES_RECORD] = asdict(await left_files(runtime, WORKDIR))


def _failed_setup(result: CommandResult) -> str:
    how = "timed out" if result.timed_out else f"exit {result.exit_code}"
    said = (result.stderr.strip() or result.stdout.strip())[-500:]
    return f"setup command failed ({how}): {result.command[:120]}" + (f": {said}" if said else "")
