"""The task: prepares the sandbox, delegates scoring to its rubric.

What must not be known to the agent (answer, verify commands) is used only in `score`. A setup
command that fails or runs out of time ends the rollout as a `TaskError` before the agent starts.
"""

import base64
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics import (
    AnswerConfig,
    AnyTrace,
    CodeTestsConfig,
    Rubric,
    RubricConfig,
    RubricTask,
    SweTestsConfig,
    TaskTestsConfig,
    VerifyCommandsConfig,
    live_rubric,
    require_alive,
    run_checked,
    run_command,
    workdir_of,
)
from opencode_rubrics.swe.problem import hide_future, place_work
from opencode_rubrics.task_tests import require_box
from rollout_sandbox.toolbox.files import unpack_archive
from rollout_sandbox.toolbox.workdir import makes_workdir
from verifiers.v1.task import task_key

from opencode_env.taskset.cells import read_rubric
from opencode_env.taskset.config import OpenCodeTaskConfig, OpenCodeTasksetConfig
from opencode_env.taskset.data import OpenCodeTaskData, named_turns
from opencode_env.taskset.gold import gold_is_right
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import show_message_alone
from opencode_env.taskset.task_folder import wait_until_healthy


class OpenCodeTask(RubricTask[OpenCodeTaskData, vf.State, OpenCodeTaskConfig]):
    """One row of an `OpenCodeTaskset`."""

    config: OpenCodeTaskConfig

    @property
    def key(self) -> str:
        """The row's identity (see `OpenCodeTaskData.row_key`); without one, a hash that leaves out `idx`."""
        if self.data.row_key is not None:
            return self.data.row_key
        return task_key(self.data.model_dump(mode="json", exclude_none=True, exclude={"idx"}))

    @property
    def rubric_config(self) -> RubricConfig:
        """The configured rubric, or the row's own, or the one that fits the row."""
        if self.config.rubric is not None:
            return self.config.rubric
        if self.data.rubric is not None:
            return read_rubric(self.data.rubric)
        if self.data.tests is not None:
            return TaskTestsConfig()
        if self.data.code_tests is not None:
            return CodeTestsConfig()
        if self.data.swe is not None:
            return SweTestsConfig()
        return VerifyCommandsConfig() if self.data.verify else AnswerConfig()

    @property
    def rubric(self) -> Rubric[Any]:
        """The live rubric that scores this task, shared with all tasks of the same configuration."""
        return live_rubric(self.rubric_config)

    @property
    def continues(self) -> bool:
        return self.data.kept_turn is not None

    def runtime_env(self) -> dict[str, str]:
        """Variables of every command in the sandbox: those that a task directory names."""
        return {} if self.data.folder is None else dict(self.data.folder.env)

    async def setup(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        """Run the row's setup commands in order, in the rollout's work directory; make a task directory's box ready. A
        `TaskError` where a command failed or ran out of time, with the end of its output."""
        workdir = workdir_of(trace)
        folder, swe = self.data.folder, self.data.swe
        if self.data.tests is not None or swe is not None:
            require_box(runtime)
        if not self.data.setup and self.data.workdir is None and folder is None and swe is None:
            return
        if not makes_workdir(runtime, workdir):
            failure = f"workdir {workdir!r} cannot be made"
            await run_checked(runtime, ["mkdir", "-p", "--", workdir], failure, error=vf.TaskError)
        if swe is not None:
            await place_work(runtime, swe, workdir)
        timeout = self.data.setup_timeout or self.config.setup_timeout
        for command in self.data.setup:
            result = await run_command(runtime, command, workdir=workdir, timeout=timeout)
            if not result.ok:
                await require_alive(runtime, f"running setup command {command!r}")
                raise vf.TaskError(f"setup command {command!r} failed ({result.ending()})")
        if folder is not None and folder.files is not None:
            await unpack_archive(runtime, base64.b64decode(folder.files), workdir, error=vf.TaskError)
        if folder is not None and folder.healthcheck is not None:
            await wait_until_healthy(runtime, folder.healthcheck, workdir)
        if swe is not None:
            await hide_future(runtime, swe, workdir)

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """`vf-validate`: whether the row's gold solution, applied in `runtime` behind the setup, is rewarded with 1;
        None where the row has none (see `opencode_env.check_tasks`)."""
        return await gold_is_right(self, runtime)


# verifiers bounds the task parameter by `Task` without arguments, whose invariant config excludes every subclass.
class OpenCodeTaskset(vf.Taskset[OpenCodeTask, OpenCodeTasksetConfig]):  # type: ignore[type-var]
    """Tasks from a file, a folder, a saved dataset or the Hub; see `OpenCodeTasksetConfig`."""

    def load(self) -> Iterator[OpenCodeTask]:
        """Yield the tasks in the dataset's order; a `DatasetError` where it cannot be found or read, a configured
        column does not exist, a row is bad, or none is kept."""
        # Reading needs pyarrow and perhaps `datasets`, which env-server workers, that only get task data,
        # should not have to import.
        from opencode_env.taskset.sources import read_rows

        show_message_alone()
        if (turns := named_turns(self.config.dataset, OpenCodeTaskData)) is not None:
            for number, data in enumerate(turns):
                yield OpenCodeTask(data.model_copy(update={"idx": number}), self.config.task)
            return
        mapper = RowMapper(self.config)
        for row in read_rows(self.config):
            yield OpenCodeTask(mapper.task_data(row), self.config.task)
