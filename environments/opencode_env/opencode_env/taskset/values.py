"""Checks and converts single cells of a row.

Every function takes a row and the name of a column, and either returns the wanted type (nothing for an empty cell) or
raises `DatasetError` with file, row and column.
"""

import base64
import json
import math
import sys
from collections.abc import Mapping, Sequence

import verifiers.v1 as vf
from opencode_rubrics import AnyRubricConfig, CodeTests, RubricConfig, SweProblem
from opencode_rubrics.code_problem import read_code_tests
from pydantic import JsonValue, TypeAdapter, ValidationError
from rollout_sandbox.surrogates import whole_text

from opencode_env.taskset.row import Row, given_fields

RUBRIC_COLUMN = "rubric"
_OPERATORS = "judge_client"
"""The option that only the user's own configuration may set."""
_ADAPTER: TypeAdapter[RubricConfig] = TypeAdapter(AnyRubricConfig)
# Beyond this, neighbouring whole numbers are the same float.
_EXACT_FLOATS = 2.0**53


def text(row: Row, key: str) -> str | None:
    """A text cell."""
    value = row.cell(key)
    if value is None or isinstance(value, str):
        return value
    row.refuse(key, f"must be text, not {_kind(value)}")


def scalar_text(row: Row, key: str) -> str | None:
    """A text or number cell as text. 7.0 becomes "7": a table with gaps turns whole numbers into floats, and that is
    not another answer."""
    value = row.cell(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        row.refuse(key, f"must be text or a number, not {_kind(value)}")
    if isinstance(value, float):
        if math.isinf(value):
            row.refuse(key, f"must be text or a finite number, not {value}")
        if value.is_integer() and abs(value) < _EXACT_FLOATS:
            return str(int(value))
    return str(value)


def identifier(row: Row, key: str) -> str | None:
    """A text or whole-number cell as text."""
    value = row.cell(key)
    if isinstance(value, float) and not value.is_integer():
        row.refuse(key, f"must be text or a whole number, not {value}")
    return scalar_text(row, key)


def commands(row: Row, key: str) -> list[str]:
    """A shell command, or a list of them."""
    if (value := row.cell(key)) is None:
        return []
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Sequence) or isinstance(found, bytes):
        row.refuse(key, f"must be a shell command or a list of them, not {_kind(value)}")
    for position, command in enumerate(found, start=1):
        if not isinstance(command, str) or not command.strip():
            row.refuse(key, f"entry {position} must be a shell command, not {_kind(command)}")
    return list(found)


def absolute_path(row: Row, key: str) -> str | None:
    """An absolute path in the sandbox."""
    path = text(row, key)
    if path is not None and not path.startswith("/"):
        row.refuse(key, f"must be an absolute path, not {path!r}")
    return path


def seconds(row: Row, key: str) -> float | None:
    """A positive number of seconds."""
    if (value := row.cell(key)) is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        row.refuse(key, f"must be a positive number of seconds, not {_kind(value)}")
    return float(value)


def agent_timeout(row: Row, key: str) -> vf.TaskTimeout:
    """The seconds that the agent has."""
    return vf.TaskTimeout(agent=seconds(row, key))


def code_tests(row: Row, key: str) -> CodeTests | None:
    """The tests of a programming problem, in any of the known forms, with those of the columns that belong to it."""
    if (value := row.cell(key)) is None:
        return None
    try:
        return read_code_tests({**row.values, key: value}, key)
    except (ValueError, RecursionError) as error:
        row.refuse(key, str(error) if isinstance(error, ValueError) else "is nested too deeply")


def swe_problem(row: Row, key: str) -> SweProblem | None:
    """A software engineering task in the row form of the rubric `swe-tests`, as a mapping or as JSON text."""
    value = row.cell(key)
    if value is None or isinstance(value, SweProblem):
        return value
    try:
        if isinstance(value, str):
            return SweProblem.model_validate_json(value)
        return SweProblem.model_validate(given_fields(value))
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        row.refuse(key, f"is not a software engineering task: {told}")


def own_rubric(row: Row) -> dict[str, JsonValue] | None:
    """The rubric's configuration in the row's column `rubric`, if that is one: a mapping with a `type`. Many datasets
    have a column of that name with a text for graders, which stays an ordinary column.

    A row chooses how it is scored, not whom this machine talks to: a dataset can come from anybody, and a judge's
    endpoint is sent the API key, or any other variable, that its configuration names.

    Raises:
        DatasetError: it has a `type` but is not a valid configuration, or names a judge's endpoint.
    """
    value = row.values.get(RUBRIC_COLUMN)
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        return None
    given = {name: json_safe(field) for name, field in given_fields(value).items()}
    try:
        read_rubric(given)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}".removeprefix(": ") for e in error.errors())
        row.refuse(RUBRIC_COLUMN, f"is not a rubric configuration: {problems}: {json.dumps(given)[:200]}")
    if _names(given, _OPERATORS):
        row.refuse(RUBRIC_COLUMN, f"must not set {_OPERATORS}: set --env.taskset.task.rubric.{_OPERATORS} instead")
    return given


def _names(value: JsonValue, key: str) -> bool:
    """Whether a mapping anywhere in `value` has this key, however it is spelt."""
    if isinstance(value, dict):
        return any(name.replace("-", "_") == key or _names(inner, key) for name, inner in value.items())
    return isinstance(value, list) and any(_names(inner, key) for inner in value)


def read_rubric(config: Mapping[str, JsonValue]) -> RubricConfig:
    return _ADAPTER.validate_python(dict(config))


def asked_for(row: Row, tests: CodeTests | None) -> str:
    """What a solution must define for its tests, to stand before the question; empty for a program."""
    if tests is None or tests.function is None:
        return ""
    asked = f"Your solution must define the function `{tests.function}`.\n\n"
    starter = text(row, "starter_code")
    return f"{asked}It must complete this code:\n\n```python\n{starter}\n```\n\n" if starter else asked


def json_safe(value: object) -> JsonValue:
    """Any cell as JSON: NaN and infinities as null, bytes as base64, other types as their text, lone surrogates
    replaced."""
    if isinstance(value, str):
        return whole_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {whole_text(str(key)): json_safe(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [json_safe(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _kind(value: object) -> str:
    """What a wrong cell holds, short enough for a message."""
    if isinstance(value, bool | int | float):
        return f"{type(value).__name__} {value}"
    if isinstance(value, str):
        return f"text {value[:60]!r}"
    return f"{type(value).__name__} {json.dumps(json_safe(value), ensure_ascii=False)[:60]}"
