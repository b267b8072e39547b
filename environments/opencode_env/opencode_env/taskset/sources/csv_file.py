"""A CSV file with a header line, read block by block.

Invariant: a cell is text, whatever it looks like (an id "007" stays as it is), and an empty cell is not a value;
only the difficulty column is read as numbers. Row numbers count data rows, without the header.
"""

import csv
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.sources.part import TablePart

# The longest row that can be read, and how much of the file is read at a time.
_BLOCK_BYTES = 16 << 20
_ROWS_PER_BATCH = 256


class CsvFile(TablePart):
    """A `.csv` file as a dataset part."""

    kind = "CSV file"

    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.string()) for name in self._header])

    def ratings(self, key: str) -> Iterator[Any]:
        before = 0
        for column in super().ratings(key):
            yield self._numbers(pc.utf8_trim_whitespace(column), key, before)
            before += len(column)

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        columns = self._header if key is None else [key]
        with pyarrow.csv.open_csv(
            self.origin,
            read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=True,
            ),
        ) as reader:
            for block in reader:
                size = _ROWS_PER_BATCH if key is None else block.num_rows
                yield block.num_rows, (block.slice(start, size) for start in range(0, block.num_rows, size))

    def _numbers(self, cells: Any, key: str, before: int) -> Any:
        try:
            return pc.cast(cells, pa.float64())
        except pa.ArrowInvalid:
            pass
        # Cell by cell by the same rule: Python's float() takes cells, such as 1_0, that Arrow does not.
        for row, cell in enumerate(cells, start=before + 1):
            try:
                pc.cast(cell, pa.float64())
            except pa.ArrowInvalid:
                raise DatasetError(
                    f'{self.origin} row {row}: column "{key}" holds {cell.as_py()!r}; difficulty_key needs a '
                    f"column of numbers"
                ) from None
        raise AssertionError("Arrow casts every cell, but not all of them")

    @cached_property
    def _header(self) -> list[str]:
        try:
            with open(self.origin, encoding="utf-8-sig", newline="") as file:
                header = next(csv.reader(file), [])
        except (OSError, ValueError, csv.Error) as error:
            raise DatasetError(f"{self.origin}: no readable CSV file: {error}") from error
        if len(set(header)) != len(header):
            twice = sorted({name for name in header if header.count(name) > 1})
            raise DatasetError(f"{self.origin}: the header names {', '.join(twice)} more than once")
        return header
