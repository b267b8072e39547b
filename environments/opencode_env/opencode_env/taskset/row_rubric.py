"""A rubric that a row brings along: a column `rubric` that holds a rubric's configuration.

Invariant: only a mapping with a `type` is one. Many datasets have a column of that name with a text for graders, which
stays an ordinary column. And a row chooses how it is scored, not whom this machine talks to: a dataset can come from
anybody, and a judge's endpoint is sent the API key, or any other variable, that its configuration names.
"""

import json
from collections.abc import Mapping

from opencode_rubrics import AnyRubricConfig, RubricConfig
from pydantic import JsonValue, TypeAdapter, ValidationError

from opencode_env.taskset.row import Row, given_fields
from opencode_env.taskset.values import json_safe

RUBRIC_COLUMN = "rubric"

_OPERATORS = "judge_client"
"""The option that only the user's own configuration may set."""

_ADAPTER: TypeAdapter[RubricConfig] = TypeAdapter(AnyRubricConfig)


def own_rubric(row: Row) -> dict[str, JsonValue] | None:
    """The configuration in the row's column `rubric`, if that is one.

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
