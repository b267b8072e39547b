"""Turns rows into task data, by the columns that the config names.

Invariant: a row either becomes complete task data or raises `DatasetError` with file, row and column;
nothing is guessed and no column is lost: what has no meaning of its own is kept under `info`.
"""

import verifiers.v1 as vf
from pydantic import JsonValue

from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.identity import IdentityCheck, content_key
from opencode_env.taskset.pictures import container_image, pictures
from opencode_env.taskset.prompt import Question, read_question
from opencode_env.taskset.row import Row
from opencode_env.taskset.row_rubric import RUBRIC_COLUMN, own_rubric
from opencode_env.taskset.values import bad_cell, commands, identifier, json_safe, scalar_text, seconds, text

_FIXED_COLUMNS = ("workdir", "setup_timeout", "agent_timeout", "verify_timeout")


class RowMapper:
    """Maps the rows of one pass over a dataset, in order."""

    def __init__(self, config: OpenCodeTasksetConfig) -> None:
        self._config = config
        self._id = config.id_key or "id"
        self._image = config.image_key or "image"
        self._setup = config.setup_key or "setup"
        self._verify = config.verify_key or "verify"
        self._system_prompt = config.system_prompt_key or "system_prompt"
        self._identity = IdentityCheck()

    def task_data(self, row: Row) -> OpenCodeTaskData:
        """The task data of `row`.

        Raises:
            DatasetError: The question is missing, a cell has the wrong type, there is neither an answer nor a
                verify command, or an id occurs twice.
        """
        config = self._config
        question = read_question(row, config.question_key)
        shown = pictures(row, self._image)
        data = OpenCodeTaskData(
            id=identifier(row, self._id),
            prompt=question.prompt(config.instruction_prompt, config.instruction_prompt_post, shown),
            system_prompt=self._system_prompt_of(row, question),
            image=container_image(row, self._image),
            workdir=self._workdir(row),
            timeout=vf.TaskTimeout(agent=seconds(row, "agent_timeout")),
            answer=scalar_text(row, config.answer_key),
            setup=commands(row, self._setup),
            verify=commands(row, self._verify),
            setup_timeout=seconds(row, "setup_timeout"),
            verify_timeout=seconds(row, "verify_timeout"),
            rubric=own_rubric(row),
            info=self._info(row),
        )
        if data.answer is None and not data.verify:
            raise DatasetError(
                f'{row.place}: neither column "{config.answer_key}" nor column "{self._verify}" holds anything; '
                f"a task needs an answer or verify commands"
            )
        return data.model_copy(update={"row_key": self._key(row, data, content_key(question, shown, data))})

    def _key(self, row: Row, data: OpenCodeTaskData, content: str) -> str:
        if data.id is not None:
            self._identity.check_id(row, self._id, data.id)
            return data.id
        if self._config.id_key is not None:
            bad_cell(row, self._id, "is empty; every row needs an id if id_key is set")
        return self._identity.numbered(content)

    def _system_prompt_of(self, row: Row, question: Question) -> str | None:
        column = text(row, self._system_prompt)
        if column is not None and question.system_prompt is not None:
            bad_cell(row, self._system_prompt, "is set although the question opens with a system message")
        return column or question.system_prompt

    def _workdir(self, row: Row) -> str | None:
        workdir = text(row, "workdir")
        if workdir is not None and not workdir.startswith("/"):
            bad_cell(row, "workdir", f"must be an absolute path, not {workdir!r}")
        return workdir

    def _info(self, row: Row) -> dict[str, JsonValue]:
        """The columns without a meaning of their own; entries of a column `info` come to the top."""
        used = {
            self._config.question_key,
            self._config.answer_key,
            self._id,
            self._image,
            self._setup,
            self._verify,
            self._system_prompt,
            *_FIXED_COLUMNS,
        }
        own = row.values.get("info")
        merged = dict(own) if isinstance(own, dict) else {}
        merged |= {
            name: value
            for name, value in row.values.items()
            if name not in used and not (name == "info" and isinstance(value, dict))
        }
        if own_rubric(row) is not None:
            del merged[RUBRIC_COLUMN]
        return {name: json_safe(value) for name, value in merged.items()}
