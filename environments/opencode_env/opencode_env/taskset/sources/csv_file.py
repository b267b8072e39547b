"""A CSV file with a header line, read block by block.

Invariant: a cell is text, whatever it looks like (an id "007" stays as it is), and an empty cell is no value;
only the difficulty column is read as numbers. Row numbers count data rows, without the header.
"""

import csv
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.arrow_columns import table_rows

# The longest row that can be read, and how much of the file is read at a time.
_BLOCK_BYTES = 16 << 20
_ROWS_PER_BATCH = 256


class CsvFile:
    """A `.csv` file as a dataset part."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def origin(self) -> str:
        """The file's path."""
        return str(self._path)

    def column_names(self) -> list[str]:
        """The names in the header line."""
        return self._header

    def has_column(self, key: str) -> bool:
        """Whether the header has `key`."""
        return key in self._header

    def ratings(self, key: str) -> Iterator[Any]:
        """Column `key` as numbers.

        Raises:
            DatasetError: A cell is neither empty nor a number.
        """
        before = 0
        for batch in self._batches([key]):
            cells = pc.utf8_trim_whitespace(batch.column(0))
            try:
                numbers = pc.cast(cells, pa.float64())
            except pa.ArrowInvalid:
                row, cell = next((i, c) for i, c in enumerate(cells.to_pylist(), 1) if not _is_number(c))
                raise DatasetError(
                    f'{self.origin} row {before + row}: column "{key}" holds {cell!r}; difficulty_key needs a '
                    f"column of numbers"
                ) from None
            before += batch.num_rows
            yield numbers

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those that `mask` keeps."""
        start = 0
        for block in self._batches(self._header):
            for offset in range(0, block.num_rows, _ROWS_PER_BATCH):
                batch = block.slice(offset, _ROWS_PER_BATCH)
                inside = None if mask is None else mask[start : start + batch.num_rows]
                yield from table_rows(self.origin, batch, start + 1, inside)
                start += batch.num_rows

    @cached_property
    def _header(self) -> list[str]:
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                header = next(csv.reader(file), [])
        except (OSError, ValueError) as error:
            raise DatasetError(f"{self.origin}: no readable CSV file: {error}") from error
        if len(set(header)) != len(header):
            twice = sorted({name for name in header if header.count(name) > 1})
            raise DatasetError(f"{self.origin}: the header names {', '.join(twice)} more than once")
        return header

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        try:
            with pyarrow.csv.open_csv(
                self._path,
                read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    include_columns=columns,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            ) as reader:
                yield from reader
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{self.origin}: no readable CSV file: {error}") from error


def _is_number(cell: str | None) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return False
    return True
