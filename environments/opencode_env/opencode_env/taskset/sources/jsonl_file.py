"""A JSONL file: one JSON object per line, read line by line.

Invariant: a row is one non-blank line, and every line is parsed on its own, so that a column may hold numbers
in one row and text in the next (Arrow's schema inference refuses that). Row numbers are line numbers.
"""

import json
import math
import sys
from collections.abc import Iterator
from itertools import compress, islice
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError, create_model

from opencode_env.taskset.difficulty_filter import Mask, floats
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import ABSENT, Row
from opencode_env.taskset.sources.part import Part


class JsonlFile(Part):
    """A `.jsonl` file as a dataset part."""

    def column_names(self) -> list[str]:
        """The columns of the first hundred rows, nested ones with dots."""
        rows = islice(self.rows(None), 100)
        return list(dict.fromkeys(path for row in rows for path in _paths(row.values)))

    def has_column(self, key: str) -> bool:
        """Whether any row has column `key`, or there are no rows; reads up to the first that has it."""
        row = None
        for row in self.rows(None):
            if row.get(key) is not ABSENT:
                return True
        return row is None

    def ratings(self, key: str) -> Iterator[Any]:
        # pydantic skips what the model does not name, which is faster than building the whole row.
        place = Field(None, validation_alias=AliasChoices(key, AliasPath(*key.split("."))))
        model = create_model("Rating", value=(Any, place))
        numbers = (self._number(number, line, key, model) for number, line in self._lines())
        while batch := list(islice(numbers, 20_000)):
            yield floats(batch)

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those that `mask` keeps; lines that it drops are not parsed."""
        for number, line in self._lines() if mask is None else compress(self._lines(), mask.to_pylist()):
            yield self._row(number, line)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers from 1."""
        with open(self.origin, "rb") as file:
            for number, line in enumerate(file, start=1):
                stripped = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
                if stripped:
                    yield number, stripped

    def _row(self, number: int, line: bytes) -> Row:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{self.origin} row {number}: no valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise DatasetError(f"{self.origin} row {number}: a JSON object is needed, not {type(values).__name__}")
        return Row(self.origin, number, values)

    def _number(self, number: int, line: bytes, key: str, model: type[BaseModel]) -> float:
        try:
            value: object = vars(model.model_validate_json(line))["value"]
        except ValidationError:
            # What pydantic cannot read, the row's own parser takes or names.
            value = self._row(number, line).cell(key)
        if value is None:
            return math.nan
        number_like = isinstance(value, int | float) and not isinstance(value, bool)
        if not number_like or (isinstance(value, int) and abs(value) > sys.float_info.max):
            problem = f"holds {repr(value)[:200]}; difficulty_key needs a column of numbers"
            Row(self.origin, number, {}).refuse(key, problem)
        return float(value)  # type: ignore[arg-type]


def _paths(values: Any, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")
