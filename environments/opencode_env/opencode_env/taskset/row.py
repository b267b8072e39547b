"""One row of a dataset as it was read, and how a column of it is found.

A name is first taken literally and only then as a path, so a column that has dots in its name
stays reachable; `ABSENT` (no such column) and `None` (an empty cell) are kept apart.
"""

import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, Final, NoReturn

from rollout_sandbox.surrogates import has_lone_surrogate

from opencode_env.errors import DatasetError


@cache
def show_message_alone() -> None:
    """Show a `DatasetError` that ends this program as its message alone from now on: whoever wrote the row that it
    names learns nothing from our frames."""
    usual = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if isinstance(error, DatasetError):
            sys.stderr.write(f"{error}\n")
        else:
            usual(kind, error, frames)

    sys.excepthook = show


def nearest_name(name: str, names: Iterable[str]) -> str:
    """A sentence that lists `names` and the one nearest to `name`, for an error message."""
    known = list(names)
    if not known:
        return "there are none"
    listed = ", ".join(known[:50]) + (", …" if len(known) > 50 else "")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"there are: {listed}" + (f" (did you mean {close[0]!r}?)" if close else "")


ABSENT: Final = object()


def given_fields(value: Any) -> Any:
    """A value whose mappings, at any depth, lack their empty fields: of rows read from a table, those that only other
    rows have are filled with nothing."""
    if isinstance(value, Mapping):
        return {name: given_fields(item) for name, item in value.items() if item is not None}
    return [given_fields(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Row:
    """A row with where it comes from."""

    origin: str
    """The file, or the name of the dataset."""
    number: int
    """Position in `origin`, from 1; in a JSONL file the line."""
    values: Mapping[str, object]
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the task data that no column holds: those of a task directory."""

    @property
    def place(self) -> str:
        """`origin row number`, as it opens an error message."""
        return f"{self.origin} row {self.number}"

    def get(self, key: str) -> object:
        """The value of column `key` (dots reach into nested columns), or `ABSENT`."""
        if key in self.values:
            return self.values[key]
        value: object = self.values
        for part in key.split("."):
            if value is None:
                # A nested column whose parent cell is empty: the column exists, its value does not.
                return None
            if not isinstance(value, Mapping) or part not in value:
                return ABSENT
            value = value[part]
        return value

    def cell(self, key: str) -> object | None:
        """The value of column `key`; `None` if it is empty (null, empty text, NaN) or there is no such column."""
        value = self.get(key)
        if has_lone_surrogate(value):
            self.refuse(key, "holds a lone surrogate, which is not text")
        empty = value is ABSENT or value == "" or (isinstance(value, float) and math.isnan(value))
        return None if empty else value

    def refuse(self, key: str, problem: str) -> NoReturn:
        raise DatasetError(f'{self.place}: column "{key}" {problem}')
