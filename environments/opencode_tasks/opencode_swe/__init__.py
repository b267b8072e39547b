"""Software engineering tasks as a verifiers environment, under the plugin id `opencode-swe`."""

from collections.abc import Iterator

import verifiers.v1 as vf
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskset
from opencode_rubrics import SweTestsConfig
from opencode_tasks.presets import OwnSplitTasksetConfig, preset, preset_seat

__all__ = ["OpenCodeSweEnv", "OpenCodeSweTaskset"]


@preset(
    task=OpenCodeTaskConfig(rubric=SweTestsConfig(), setup_timeout=900.0),
    dataset="SWE-bench/SWE-bench_Verified",
    dataset_split="test",
)
class OpenCodeSweTasksetConfig(OwnSplitTasksetConfig):
    """Repositories with a bug or a wish, scored by tests that run where the agent never was."""


class OpenCodeSweTaskset(OpenCodeTaskset, vf.Taskset[OpenCodeTask, OpenCodeSweTasksetConfig]):  # type: ignore[type-var]
    """Rows of eight known datasets, or with a column `swe` (`SweProblem`)."""

    def load(self) -> Iterator[OpenCodeTask]:
        """Yield the tasks in the dataset's order; a `DatasetError` if it cannot be read, or a row is of no known form,
        or lacks what its form needs."""
        # As in the taskset above: workers, which only get task data, need not import what reads datasets.
        from opencode_env.taskset.mapping import RowMapper
        from opencode_env.taskset.row import show_message_alone
        from opencode_env.taskset.sources import read_rows

        from opencode_swe.forms import swe_row

        show_message_alone()
        mapper = RowMapper(self.config)
        for row in read_rows(self.config, asked={}):
            yield OpenCodeTask(mapper.task_data(swe_row(row)), self.config.task)


_DISABLED_TOOLS = (
    *("apply_patch", "batch", "codesearch", "glob", "grep", "list", "lsp", "plan_enter", "plan_exit", "question"),
    *("read", "skill", "task", "todoread", "todowrite", "webfetch", "websearch"),
)
"""`bash`, `edit` and `write` are left: OpenCode has one switch for the last two, and for `multiedit`."""


@preset(agent=preset_seat(max_turns=200, seconds=5400, disabled_tools=_DISABLED_TOOLS))
class OpenCodeSweEnvConfig(OpenCodeEnvConfig):
    """OpenCode on software engineering, with 200 turns, an hour and a half, and the tools `bash`, `edit`, `write`."""


class OpenCodeSweEnv(OpenCodeEnv, vf.Env[OpenCodeSweEnvConfig]):
    """Runs OpenCode on each repository in a sandbox of its own, and judges what it changed in another."""
