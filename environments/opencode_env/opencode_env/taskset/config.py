"""Configuration of the taskset and its tasks (`--env.taskset.*`, `--env.taskset.task.*`)."""

from typing import Self

import verifiers.v1 as vf
from opencode_rubrics import AnyRubricConfig
from pydantic import Field, model_validator

from opencode_env.taskset.columns import ColumnOptions


class OpenCodeTaskConfig(vf.TaskConfig):
    """How a task is prepared and scored."""

    rubric: AnyRubricConfig | None = None
    """The rubric that scores, picked by its `type`. `None`: the row's own (a column `rubric` with a `type`),
    else `verify-commands` for a row that has verify commands, `answer` for a row that has only an answer."""
    setup_timeout: float = Field(300.0, gt=0, allow_inf_nan=False)
    """Seconds per setup command; a row's own `setup_timeout` goes before it."""


class OpenCodeTasksetConfig(ColumnOptions):
    """Which rows are loaded, and which of their columns mean what (see `ColumnOptions`)."""

    task: OpenCodeTaskConfig = OpenCodeTaskConfig()
    dataset: str | None = None
    """A `.jsonl`, `.parquet` or `.csv` file, a folder or glob of such files, a folder saved by the
    `datasets` library, a folder of task directories in the layout of Harbor and Terminal-Bench 2 (`task.toml`,
    `instruction.md`, `tests/test.sh`), or the name of a Hub dataset. `None`: the sample tasks that ship with the
    package."""
    dataset_subset: str | None = None
    """The Hub dataset's configuration, or a sub-folder of a local folder."""
    dataset_split: str | None = None
    """`None`: `train` where there are several splits, the only one otherwise."""
    revision: str | None = None
    """Commit, branch or tag of a Hub dataset; refused for local data."""
    streaming: bool = False
    """Read a Hub dataset over the network while the run goes on, instead of downloading it first. Local data
    is always read as it is needed."""
    instruction_prompt: str = ""
    """Text put directly before every question; end it with the white space that should separate them."""
    instruction_prompt_post: str = ""
    """Text put directly after every question."""
    options_prompt: str = Field("\n\n{options}\n\nThe answer is the letter of one option.", pattern=r"\{options\}")
    """Text behind a multiple-choice question that does not show its options: `{options}` stands for their lines."""
    max_num_tests: int = Field(15, ge=1)
    """The most tests that a programming problem is scored by. Of more, which are drawn follows from the row's identity
    alone: it is the same in every process and run."""
    difficulty_key: str | None = None
    """Column of a number per row, such as a model's mean reward, by which rows are kept or dropped."""
    min_avg_reward: float = Field(0.0, allow_inf_nan=False)
    """Lowest difficulty number that is kept, itself included."""
    max_avg_reward: float = Field(1.0, allow_inf_nan=False)
    """Highest difficulty number that is kept, itself included."""
    keep_unrated: bool = False
    """Whether rows whose difficulty is empty or not a number are kept."""
    skip_unsupported: bool = False
    """Leave out the task directories of a folder that cannot be honoured, and warn of them; otherwise one of them
    refuses the folder."""

    @property
    def dataset_name(self) -> str:
        """What the dataset is called in messages."""
        return self.dataset or "samples"

    @model_validator(mode="after")
    def _check_difficulty(self) -> Self:
        if self.min_avg_reward > self.max_avg_reward:
            above = f"min_avg_reward {self.min_avg_reward} is above max_avg_reward {self.max_avg_reward}"
            raise ValueError(f"{above}; swap them")
        bounded = (self.min_avg_reward, self.max_avg_reward) != (0.0, 1.0)
        if self.difficulty_key is None and (bounded or self.keep_unrated):
            raise ValueError(
                "min_avg_reward, max_avg_reward and keep_unrated need difficulty_key: the column to compare"
            )
        return self
