"""Makes task data of rows, by the table of columns.

A row either becomes complete task data or raises `DatasetError` with file, row and column;
nothing is guessed and no column is lost: what has no meaning of its own is kept under `info`.

A row's identity is the same across runs, machines, row orders and file formats: its hash covers what makes the task
(question, pictures, and the columns that the table marks) and nothing else, so that adding a column such as
`avg_reward` or changing an instruction prompt leaves it as it was. Rows that are equal in all of that are counted.
"""

import hashlib
import json
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics.code_problem import test_columns
from opencode_rubrics.registry import OWN_RUBRICS
from pydantic import JsonValue, ValidationError
from rollout_sandbox.interface import COMMAND
from rollout_sandbox.surrogates import whole_text

from opencode_env.errors import DatasetError
from opencode_env.taskset.cells import (
    RUBRIC_COLUMN,
    Question,
    asked_for,
    chosen_letter,
    json_safe,
    own_rubric,
    pictures,
)
from opencode_env.taskset.config import IDENTITY_FIELDS, OpenCodeTasksetConfig, named_columns
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_env.taskset.row import Row

logger = logging.getLogger("verifiers.v1.opencode_env.taskset")

_TEST_RUNNERS = re.compile(
    r"\b(?:pytest|py\.test|unittest|nosetests|doctest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|gradlew?|mvn)\b"
    r"|\b(?:npm|pnpm|yarn|go|cargo|make|bun|deno|mix|swift|dotnet)\s+(?:run\s+)?(?:test|check|run)\b"
)
_PYTHON_CODE = re.compile(r"\bpython[\d.]*\s(?:[^\n;|&]*?\s)?-c\s+(['\"])(.*?)\1", re.DOTALL)
_IMPORTED = re.compile(r"(?:^|[;\n])\s*(?:from\s+([A-Za-z_]\w*)[\w.]*\s+import\b|import\s+([\w., ]+))")
_STARTS = r"(?:^|[;&|(\n]|\b(?:then|do|else|if|timeout \S+))\s*"
_RUNS_FILE = re.compile(
    rf"(?:{_STARTS}|\s)(?:python[\d.]*|sh|bash|node|ruby|perl|php)\s+(?:-\S+\s+)*(?:\./|/app/|\w)[\w./-]*\.\w+(?=$|[\s;&|)])"
    rf"|{_STARTS}(?:\./|/app/)[\w./-]+(?=$|[\s;&|)])"
)
_USED_BY_ITS_EXIT = re.compile(rf"(?:^|&&|\|\||;|\n|\bif|!)\s*{COMMAND}\b(?![^\n]*(?:--status|[|>]))")


def agent_code_in(command: str) -> str | None:
    """The part of a verify command by which code of the agent's seems to get into it; None if there is none."""
    if COMMAND in command:
        return None
    if found := _TEST_RUNNERS.search(command):
        return found.group()
    for _, code in _PYTHON_CODE.findall(command):
        for module, modules in _IMPORTED.findall(code):
            names = [module] if module else [name.split()[0].partition(".")[0] for name in modules.split(",") if name]
            if foreign := [name for name in names if name and name not in sys.stdlib_module_names]:
                return f"import {foreign[0]}"
    ran = _RUNS_FILE.search(command)
    return ran.group().strip() if ran else None


def judged_by_its_exit(command: str) -> bool:
    """Whether a verify command takes the exit code of `run-agent-code` for a verdict, which is always 0."""
    return bool(_USED_BY_ITS_EXIT.search(command))


def warn_of_agent_code(place: str, commands: Iterable[str]) -> bool:
    """Log a warning about the first command that agent code can decide; whether there was one."""
    for command in commands:
        if judged_by_its_exit(command):
            told = (
                f"takes the exit code of {COMMAND} for a verdict, but that is 0 whatever the agent's code did: compare "
                "what it printed, or what --status FILE says"
            )
        elif (part := agent_code_in(command)) is not None:
            told = (
                f"seems to run the agent's code itself ({part!r}), which can then end it with exit code 0, patch its "
                f"checks or write its reward file: run that code with `{COMMAND} -- COMMAND` and compare what it prints"
            )
        else:
            continue
        logger.warning("%s: a verify command %s. Further rows are not looked at.", place, told)
        return True
    return False


def content_key(question: Question, shown: Sequence[vf.ImageUrlContentPart], data: OpenCodeTaskData) -> str:
    """Hash of a row's content, as 64 hexadecimal digits."""
    content = data.model_dump(mode="json", include=IDENTITY_FIELDS)
    asked = question.content
    content["question"] = asked if isinstance(asked, str) else [part.model_dump(mode="json") for part in asked]
    content["earlier"] = [message.model_dump(mode="json", exclude_none=True) for message in question.earlier]
    content["pictures"] = [hashlib.sha256(part.image_url.url.encode()).hexdigest() for part in shown]
    present = {name: value for name, value in content.items() if value not in (None, [])}
    return hashlib.sha256(json.dumps(present, sort_keys=True).encode()).hexdigest()


class RowMapper:
    """Maps the rows of one pass over a dataset, in order."""

    def __init__(self, config: OpenCodeTasksetConfig) -> None:
        self._config = config
        self._columns = named_columns(config)
        self._names = {column.field: name for name, column in self._columns}
        # Eight bytes per key keep a pass over millions of rows small; the chance that two of a million keys
        # collide is below 1 in 10 million.
        self._keys: set[bytes] = set()
        self._copies: dict[bytes, int] = {}
        self._warned = False

    def task_data(self, row: Row) -> OpenCodeTaskData:
        """The task data of `row`; a `DatasetError` where it has no question, nothing to score it by, an id a second
        time, or a cell of the wrong type or too deep for a trace."""
        try:
            return self._mapped(row)
        except (RecursionError, ValidationError) as error:
            raise DatasetError(f"{row.place}: a cell is nested too deeply; keep it as JSON text") from error

    def _mapped(self, row: Row) -> OpenCodeTaskData:
        fields = {column.field: column.read(row, name) for name, column in self._columns}
        question: Question = fields["prompt"]
        shown = pictures(row, self._names["image"])
        before = self._config.instruction_prompt + asked_for(row, fields["code_tests"])
        after = self._choices(row, question, fields) + self._config.instruction_prompt_post
        fields["prompt"] = question.prompt(before, after, shown)
        if question.system_prompt is not None:
            if fields["system_prompt"] is not None:
                row.refuse(self._names["system_prompt"], "is set although the question opens with a system message")
            fields["system_prompt"] = question.system_prompt
        rubric = own_rubric(row)
        unused = (*(() if rubric else (RUBRIC_COLUMN,)), *(() if fields["options"] else (self._names["options"],)))
        data = OpenCodeTaskData(**fields, **row.given, rubric=rubric, info=self._info(row, unused))
        scorable = data.answer is not None or data.verify or data.tests or data.code_tests or data.swe
        configured = self._config.task.rubric
        scorer = configured.type if configured is not None else (rubric or {}).get("type")
        # What the rubric of another package reads is not known.
        if not scorable and (scorer is None or scorer in OWN_RUBRICS):
            raise DatasetError(
                f'{row.place}: neither column "{self._names["answer"]}" nor column "{self._names["verify"]}" holds '
                'anything; a task needs an answer or verify commands, code tests (tests_key), a column "swe", or a '
                "rubric of your own"
            )
        self._warned = self._warned or warn_of_agent_code(row.place, data.verify)
        key = self._key(row, data, content_key(question, shown, data))
        drawn = data.code_tests and data.code_tests.sampled(self._config.max_num_tests, key)
        return data.model_copy(update={"row_key": key, "code_tests": drawn})

    def _choices(self, row: Row, question: Question, fields: dict[str, Any]) -> str:
        """Return what shows the options of a multiple-choice question, whose answer becomes a letter; empty for
        others."""
        options, answer, letter = fields["options"], fields["answer"], None
        if options and answer is not None:
            must = self._config.options_key is not None
            letter = chosen_letter(row, self._names["answer"], answer, options, must=must)
        if letter is None:
            fields["options"] = None
            return ""
        fields["answer"] = letter
        lines = "\n".join(f"{name}. {text}" for name, text in options.items())
        return "" if question.shows(options) else self._config.options_prompt.replace("{options}", lines)

    def _key(self, row: Row, data: OpenCodeTaskData, content: str) -> str:
        """The row's id, or `content` for its first row, `content-2` for the second equal row, and so on."""
        if data.id is None and self._config.id_key is not None:
            row.refuse(self._config.id_key, "is empty; every row needs an id if id_key is set")
        key = content if data.id is None else data.id
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        if digest not in self._keys:
            self._keys.add(digest)
            return key
        if data.id is not None:
            row.refuse(self._names["id"], f"repeats the id {key!r} of an earlier row")
        copies = self._copies[digest] = self._copies.get(digest, 1) + 1
        return f"{content}-{copies}"

    def _info(self, row: Row, unused: Sequence[str]) -> dict[str, JsonValue]:
        """The columns without a meaning of their own; entries of a column `info` come to the top."""
        tests = test_columns(self._names["code_tests"], row.values)
        used = {*self._names.values(), *tests, RUBRIC_COLUMN}.difference(unused)
        rest = {name: value for name, value in row.values.items() if name not in used}
        own = rest.pop("info") if isinstance(rest.get("info"), dict) else {}
        assert isinstance(own, dict)
        return {whole_text(name): json_safe(value) for name, value in (own | rest).items()}
