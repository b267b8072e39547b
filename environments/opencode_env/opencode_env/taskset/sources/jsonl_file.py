"""A JSONL file: one JSON object per line, read line by line.

Invariant: a row is one non-blank line, and every line is parsed on its own, so that a column may hold numbers
in one row and text in the next (Arrow's schema inference refuses that). Row numbers are line numbers.
"""

import json
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import ABSENT, Row
from opencode_env.taskset.sources.jsonl_numbers import numbers_of_lines

_SAMPLED_ROWS = 100
_LINES_PER_BATCH = 20_000


class JsonlFile:
    """A `.jsonl` file as a dataset part."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def origin(self) -> str:
        """The file's path."""
        return str(self._path)

    def column_names(self) -> list[str]:
        """The columns of the first hundred rows, nested ones with dots."""
        names: dict[str, None] = {}
        for row in islice(self.rows(None), _SAMPLED_ROWS):
            names.update(dict.fromkeys(_paths(row.values)))
        return list(names)

    def has_column(self, key: str) -> bool:
        """Whether any row has column `key`, or there are no rows; reads up to the first that has it."""
        empty = True
        for row in self.rows(None):
            if row.get(key) is not ABSENT:
                return True
            empty = False
        return empty

    def ratings(self, key: str) -> Iterator[Any]:
        """Column `key` as floats, one per row.

        Raises:
            DatasetError: A line is no JSON object, or a value is neither a number nor null.
        """
        lines = self._lines()
        while batch := list(islice(lines, _LINES_PER_BATCH)):
            numbers = numbers_of_lines([line for _, line in batch], key)
            yield self._parsed_numbers(batch, key) if numbers is None else numbers

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those that `mask` keeps; lines that it drops are not parsed."""
        for position, (number, line) in enumerate(self._lines()):
            if mask is None or mask[position]:
                yield self._row(number, line)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers from 1."""
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                stripped = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
                if stripped:
                    yield number, stripped

    def _row(self, number: int, line: bytes) -> Row:
        try:
            values = json.loads(line)
        except ValueError as error:
            raise DatasetError(f"{self.origin} row {number}: no valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise DatasetError(f"{self.origin} row {number}: a JSON object is needed, not {type(values).__name__}")
        return Row(self.origin, number, values)

    def _parsed_numbers(self, batch: list[tuple[int, bytes]], key: str) -> Any:
        """What Arrow's parser would not take, parsed line by line to say which row is wrong."""
        numbers = []
        for number, line in batch:
            row = self._row(number, line)
            value = row.get(key)
            if value is ABSENT or value is None:
                numbers.append(math.nan)
            elif isinstance(value, bool) or not isinstance(value, int | float):
                raise DatasetError(
                    f'{row.place}: column "{key}" holds {value!r}; difficulty_key needs a column of numbers'
                )
            else:
                numbers.append(float(value))
        return pa.array(numbers, type=pa.float64())


def _paths(values: Any, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")
