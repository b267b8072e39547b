"""Configuration of the taskset and its tasks (`--env.taskset.*`, `--env.taskset.task.*`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Self

import verifiers.v1 as vf
from opencode_rubrics import AnyRubricConfig
from pydantic import Field, model_validator

from opencode_env.taskset import cells
from opencode_env.taskset.cells import container_image, read_options, read_question
from opencode_env.taskset.row import Row


@dataclass(frozen=True)
class Column:
    """Tells how one column becomes a field of the task data."""

    field: str
    read: Callable[[Row, str], Any]
    name: str | None = None
    """What the column is called unless its option says otherwise; `None`: as the field."""
    identity: bool = False
    """Whether another value makes another task."""
    required: bool = False
    """Whether it must exist even under its own name."""


class ColumnOptions(vf.TasksetConfig):
    """The columns whose names can be configured."""

    question_key: Annotated[str, Column("prompt", read_question, required=True)] = "question"
    """Column of the question: text, or a list of `{role, content}` messages that ends with the user's."""
    answer_key: Annotated[str, Column("answer", cells.scalar_text, identity=True)] = "answer"
    """Column of the right answer: text or a number. The default may be missing in rows that have `verify`."""
    options_key: Annotated[str | None, Column("options", read_options, identity=True)] = None
    """Column of the options of a multiple-choice question: a list of texts, or a table of them by letter. The model is
    shown them with their letters, unless the question shows them, and the answer becomes a letter. `None`: `options`,
    `choices`, or columns of their own, such as `A`, `opa` or `option_1`, if there are such."""
    id_key: Annotated[str | None, Column("id", cells.identifier)] = None
    """Column that names a row for good. `None`: `id` if there is one, else a hash of the content."""
    image_key: Annotated[str | None, Column("image", container_image, identity=True)] = None
    """Column of the image. Text names the container image of the sandbox; pictures (bytes, the `datasets`
    image type, or lists of them) are shown to the model with the question. `None`: `image` if there is
    one."""
    setup_key: Annotated[str | None, Column("setup", cells.commands, identity=True)] = None
    """Column of the shell command, or list of commands, that prepare the sandbox. `None`: `setup` if there
    is one."""
    verify_key: Annotated[str | None, Column("verify", cells.commands, identity=True)] = None
    """Column of the shell command, or list of commands, that check the result. `None`: `verify` if there
    is one."""
    tests_key: Annotated[str | None, Column("code_tests", cells.code_tests)] = None
    """Column of a programming problem's tests (inputs and expected outputs), in any of the forms that the README of
    the rubrics names; columns that belong to it, as public and private tests do, are read with it. `None`:
    `code_tests` if there is one."""
    system_prompt_key: Annotated[str | None, Column("system_prompt", cells.text, identity=True)] = None
    """Column of the system prompt. `None`: `system_prompt` if there is one."""


CONFIGURABLE: dict[str, Column] = {
    option: next(item for item in field.metadata if isinstance(item, Column))
    for option, field in ColumnOptions.model_fields.items()
    if option not in vf.TasksetConfig.model_fields
}
"""The columns by the option that names them."""
FIXED = (
    Column("workdir", cells.absolute_path, identity=True),
    Column("swe", cells.swe_problem, identity=True),
    Column("timeout", cells.agent_timeout, name="agent_timeout"),
    Column("setup_timeout", cells.seconds),
    Column("verify_timeout", cells.seconds),
)
IDENTITY_FIELDS = {column.field for column in (*CONFIGURABLE.values(), *FIXED) if column.identity}


def named_columns(options: ColumnOptions) -> list[tuple[str, Column]]:
    """All columns with the names that they have in the dataset."""
    configured = [(getattr(options, option) or column.field, column) for option, column in CONFIGURABLE.items()]
    return configured + [(column.name or column.field, column) for column in FIXED]


def asked_columns(options: ColumnOptions) -> dict[str, str]:
    """The columns that must exist, by option: those asked for by name. Those found by convention may be missing."""
    asked = {option: getattr(options, option) for option in CONFIGURABLE}
    defaults = {option: field.default for option, field in ColumnOptions.model_fields.items()}
    return {option: key for option, key in asked.items() if CONFIGURABLE[option].required or key != defaults[option]}


class OpenCodeTaskConfig(vf.TaskConfig):
    """Sets how a task is prepared and scored."""

    rubric: AnyRubricConfig | None = None
    """The rubric that scores, picked by its `type`. `None`: the row's own (a column `rubric` with a `type`),
    else `verify-commands` for a row that has verify commands, `answer` for a row that has only an answer."""
    setup_timeout: float = Field(300.0, gt=0, allow_inf_nan=False)
    """Seconds per setup command; a row's own `setup_timeout` goes before it."""


class OpenCodeTasksetConfig(ColumnOptions):
    """Sets which rows are loaded, and which of their columns mean what (see `ColumnOptions`)."""

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
