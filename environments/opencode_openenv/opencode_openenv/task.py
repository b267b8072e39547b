"""The task behind `run_rollout`: setup and verify commands in `/home/user`, the agent in `workdir` below it.

Whatever stands in the work directory (links, pipes, endless or binary files, names with line breaks), its read is
bounded in time and size, follows no link, and fails no rollout. The reward file stands in a directory that was made
after the agent's processes had ended. The documented place, `/home/user/logs/verifier`, is a link to it, made at the
same time: where the agent prevents that nothing counts, because commands that write a reward as a rule always exit 0.
"""

import base64
import binascii
import math
from typing import Any, Literal

import verifiers.v1 as vf
from opencode_env.taskset.config import OpenCodeTaskConfig
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_env.taskset.task import OpenCodeTask
from opencode_rubrics import (
    AnyTrace,
    CommandResult,
    Rubric,
    VerifyCommandsConfig,
    VerifyCommandsRubric,
    require_alive,
    run_checked,
    run_command,
)
from opencode_rubrics.reward_file import read_reward_file
from opencode_rubrics.verify_commands import VerifyPlan, explained
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import run_for
from rollout_sandbox.toolbox.scoring_home import VERIFIER_DIRECTORY, ScoringHome

from opencode_openenv.spec import RolloutSpec

_HOME = "/home/user"
WORKDIR = f"{_HOME}/workdir"


class RunRolloutRubric(VerifyCommandsRubric):
    """Scores a `run_rollout`; without verify commands there is no reward."""

    async def score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> None:
        if getattr(task, "verify", None):
            await super().score(task, trace, runtime)

    def directory(self, trace: AnyTrace) -> str:
        """The home of setup and verify commands, above the agent's work directory."""
        return _HOME

    async def run(
        self, plan: VerifyPlan, trace: AnyTrace, runtime: vf.Runtime, home: ScoringHome, workdir: str
    ) -> list[CommandResult]:
        """Results of all commands, with the reward file's documented place made first."""
        if not home.problem:
            argv = program_argv("reward_place.sh", _HOME, VERIFIER_DIRECTORY, owner="opencode_openenv")
            made = await run_for(runtime, [home.shell, *argv[1:]], 60.0, "the reward file's place cannot be made")
            if made.exit_code != 0:
                home.problem = f"{_HOME}/logs/verifier cannot be made: {made.stderr.strip()[-300:]}"
        return await super().run(plan, trace, runtime, home, workdir)

    async def reward(
        self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime, home: ScoringHome, results: list[CommandResult]
    ) -> float:
        """The reward file's number if there is one, else the share of commands that passed."""
        if home.problem:
            return explained(trace, home.problem)
        if not home.reward_file:
            return sum(result.ok for result in results) / len(results)
        bounds: tuple[float, float] | None = getattr(task, "reward_bounds", None)
        written = await read_reward_file(runtime, *(bounds or (-math.inf, math.inf)))
        return explained(trace, written.problem) if written.problem else written.reward


_BELOW_BYTES = 64 << 10
_MOST = 32
_CHARACTERS = 8000


async def left_files(runtime: vf.Runtime, directory: str) -> tuple[dict[str, str], list[str]]:
    """The first files of `directory` to depth 2, none where they cannot be read in time: the first 8,000 characters of
    texts by absolute path, and the paths of those that are not text."""
    argv = program_argv(
        "read_files.sh", directory, str(_BELOW_BYTES), str(_MOST), str(_CHARACTERS * 4), owner="opencode_openenv"
    )
    result = await run_for(runtime, argv, 30.0, f"the files of {directory} cannot be read")
    texts: dict[str, str] = {}
    others: list[str] = []
    for line in result.stdout.splitlines() if result.exit_code == 0 else ():
        path, _, content = line.partition(" ")
        try:
            name, data = base64.b64decode(path, validate=True).decode(), base64.b64decode(content, validate=True)
        except (binascii.Error, UnicodeDecodeError):
            continue  # a name that is not text cannot be told
        text = _text(data)
        if text is None:
            others.append(name)
        else:
            texts[name] = text
    return texts, others


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()[:_CHARACTERS]
    except UnicodeDecodeError as error:
        # The head may end within a character.
        return data[: error.start].decode()[:_CHARACTERS] if error.start > len(data) - 4 else None


SETUP_RECORD = "setup"
"""Key in a trace's `info`: what each setup command did."""
FILES_RECORD = "files"
"""Key in a trace's `info`: the `texts` and the `others` of the files that the agent left."""
_RUBRIC = RunRolloutRubric(VerifyCommandsConfig())


class RolloutTaskData(OpenCodeTaskData):
    kind: Literal["run_rollout"] = "run_rollout"
    reward_bounds: tuple[float, float] | None = None
    """The least and the most that the reward file may hold; None = any number."""


class RolloutTask(OpenCodeTask):
    """One call's task; it belongs to no taskset."""

    data: RolloutTaskData

    @classmethod
    def of(cls, spec: RolloutSpec) -> "RolloutTask":
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
        """Make the directories and run the setup commands in order, each recorded; one that fails is a `TaskError`."""
        await run_checked(runtime, ["mkdir", "-p", "--", WORKDIR], f"{WORKDIR} cannot be made", error=vf.TaskError)
        records = trace.info[SETUP_RECORD] = []
        timeout = self.data.setup_timeout or self.config.setup_timeout
        for command in self.data.setup:
            result = await run_command(runtime, command, workdir=_HOME, timeout=timeout, environment={"HOME": _HOME})
            records.append(result.record())
            if not result.ok:
                await require_alive(runtime, f"running setup command {command!r}")
                how = "timed out" if result.timed_out else f"exit {result.exit_code}"
                said = (result.stderr.strip() or result.stdout.strip())[-500:]
                told = f"setup command failed ({how}): {result.command[:120]}" + (f": {said}" if said else "")
                raise vf.TaskError(told)

    async def score(self, trace: AnyTrace, runtime: vf.Runtime | None = None, deployment: Any = None) -> None:
        await super().score(trace, runtime, deployment)
        if runtime is not None and trace.stop_condition != "setup_timeout":
            texts, others = await left_files(runtime, WORKDIR)
            trace.info[FILES_RECORD] = {"texts": texts, "others": others}
