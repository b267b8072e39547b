"""Checks and converts single cells of a row.

Every function takes the cell as it was read and either returns the wanted type or raises `DatasetError` with
file, row and column.
"""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

from pydantic import JsonValue

from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import ABSENT, Row

# Beyond this, neighbouring whole numbers are the same float.
_EXACT_FLOATS = 2.0**53


def bad_cell(row: Row, key: str, problem: str) -> NoReturn:
    """Raise the `DatasetError` for one cell."""
    raise DatasetError(f'{row.place}: column "{key}" {problem}')


def text(row: Row, key: str) -> str | None:
    """A non-empty text cell; `None` if the cell is empty or absent."""
    value = row.get(key)
    if value is ABSENT or value is None or value == "":
        return None
    if not isinstance(value, str):
        bad_cell(row, key, f"must be text, not {_kind(value)}")
    return value


def scalar_text(row: Row, key: str) -> str | None:
    """A text or number cell as text; `None` if it is empty, absent or NaN.

    7.0 becomes "7": a table with gaps turns whole numbers into floats, and that is no other answer.
    """
    value = row.get(key)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            bad_cell(row, key, f"must be text or a finite number, not {value}")
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT_FLOATS else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is ABSENT or value is None or value == "":
        return None
    if not isinstance(value, str):
        bad_cell(row, key, f"must be text or a number, not {_kind(value)}")
    return value


def identifier(row: Row, key: str) -> str | None:
    """A text or whole-number cell as text; `None` if it is empty, absent or NaN."""
    value = row.get(key)
    if isinstance(value, float) and not math.isnan(value) and not value.is_integer():
        bad_cell(row, key, f"must be text or a whole number, not {value}")
    return scalar_text(row, key)


def commands(row: Row, key: str) -> list[str]:
    """A shell command, or a list of them; empty if the cell is empty or absent."""
    value = row.get(key)
    if value is ABSENT or value is None or value == "":
        return []
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Sequence) or isinstance(found, bytes):
        bad_cell(row, key, f"must be a shell command or a list of them, not {_kind(value)}")
    for position, command in enumerate(found, start=1):
        if not isinstance(command, str) or not command.strip():
            bad_cell(row, key, f"entry {position} must be a shell command, not {_kind(command)}")
    return list(found)


def seconds(row: Row, key: str) -> float | None:
    """A positive number of seconds; `None` if the cell is empty or absent."""
    value = row.get(key)
    if value is ABSENT or value is None or value == "":
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        bad_cell(row, key, f"must be a positive number of seconds, not {_kind(value)}")
    return float(value)


def json_safe(value: object) -> JsonValue:
    """Any cell as JSON: NaN and infinities as null, bytes as base64, dates and other types as their text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [json_safe(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _kind(value: object) -> str:
    """What a wrong cell holds, short enough for a message."""
    if isinstance(value, bool | int | float):
        return f"{type(value).__name__} {value}"
    if isinstance(value, str):
        return f"text {value[:60]!r}"
    shown = json.dumps(json_safe(value), ensure_ascii=False)
    return f"{type(value).__name__} {shown[:60]}"
