"""The one table of a dataset's columns: name, option, reader, field of the task data, part of the identity or not.

Checking, mapping, identity and the keys that `opencode-difficulty` joins by follow it: a new column is a line here and
a field of `OpenCodeTaskData`. A key may reach into nested columns with dots.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import verifiers.v1 as vf

from opencode_env.taskset import values
from opencode_env.taskset.prompt import container_image, read_options, read_question
from opencode_env.taskset.row import Row


@dataclass(frozen=True)
class Column:
    """How one column becomes a field of the task data."""

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
    answer_key: Annotated[str, Column("answer", values.scalar_text, identity=True)] = "answer"
    """Column of the right answer: text or a number. The default may be missing in rows that have `verify`."""
    options_key: Annotated[str | None, Column("options", read_options, identity=True)] = None
    """Column of the options of a multiple-choice question: a list of texts, or a table of them by letter. The model is
    shown them with their letters, unless the question shows them, and the answer becomes a letter. `None`: `options`,
    `choices`, or columns of their own, such as `A`, `opa` or `option_1`, if there are such."""
    id_key: Annotated[str | None, Column("id", values.identifier)] = None
    """Column that names a row for good. `None`: `id` if there is one, else a hash of the content."""
    image_key: Annotated[str | None, Column("image", container_image, identity=True)] = None
    """Column of the image. Text names the container image of the sandbox; pictures (bytes, the `datasets`
    image type, or lists of them) are shown to the model with the question. `None`: `image` if there is
    one."""
    setup_key: Annotated[str | None, Column("setup", values.commands, identity=True)] = None
    """Column of the shell command, or list of commands, that prepare the sandbox. `None`: `setup` if there
    is one."""
    verify_key: Annotated[str | None, Column("verify", values.commands, identity=True)] = None
    """Column of the shell command, or list of commands, that check the result. `None`: `verify` if there
    is one."""
    tests_key: Annotated[str | None, Column("code_tests", values.code_tests)] = None
    """Column of a programming problem's tests (inputs and expected outputs), in any of the forms that the README of
    the rubrics names; columns that belong to it, as public and private tests do, are read with it. `None`:
    `code_tests` if there is one."""
    system_prompt_key: Annotated[str | None, Column("system_prompt", values.text, identity=True)] = None
    """Column of the system prompt. `None`: `system_prompt` if there is one."""


CONFIGURABLE: dict[str, Column] = {
    option: next(item for item in field.metadata if isinstance(item, Column))
    for option, field in ColumnOptions.model_fields.items()
    if option not in vf.TasksetConfig.model_fields
}
"""The columns by the option that names them."""
FIXED = (
    Column("workdir", values.absolute_path, identity=True),
    Column("swe", values.swe_problem, identity=True),
    Column("timeout", values.agent_timeout, name="agent_timeout"),
    Column("setup_timeout", values.seconds),
    Column("verify_timeout", values.seconds),
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
