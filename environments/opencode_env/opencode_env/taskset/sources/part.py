"""What a dataset is made of: parts that can be read more than once without being held in memory.

Columns are found in Arrow tables by the rule of `Row.get`: a name literally, else a path with dots into structs.

Invariant of a CSV file, which is read block by block: a cell is text, whatever it looks like (an id "007" stays as it
is), and an empty cell is not a value; only the difficulty column is read as numbers.
"""

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import Row

ROWS_PER_BATCH = 256
RATINGS_PER_BATCH = 1 << 13
# Column chunks are streamed through a buffer of this size: a row group may be the whole file.
_BUFFER_BYTES = 1 << 18
# The longest row that can be read, and how much of the file is read at a time.
_BLOCK_BYTES = 16 << 20


class Part(ABC):
    """One file or table."""

    first = 1
    """The number of its first row."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        """The file or dataset, as its rows and messages name it."""

    @abstractmethod
    def column_names(self) -> list[str]:
        """Its columns; nested ones with dots."""

    def has_column(self, key: str) -> bool:
        """Whether `key` names a column, literally or as a path."""
        return key in self.column_names()

    @abstractmethod
    def ratings(self, key: str) -> Iterator[Any]:
        """Column `key` as Arrow arrays that follow each other, one value per row; no other column is read."""

    @abstractmethod
    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those whose entry in `mask` is true; reads as it goes."""


class TablePart(Part):
    """A part that Arrow reads, in stretches of rows that can be skipped."""

    kind = "table"
    """What it is called in messages."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Its columns with their types."""

    @abstractmethod
    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        """Lengths of stretches, each with its tables or batches, which are read when they are iterated. With a `key`,
        other columns may be missing in them."""

    def column_names(self) -> list[str]:
        with self._reading():
            return _leaf_names(self.schema())

    def ratings(self, key: str) -> Iterator[Any]:
        with self._reading():
            for _, tables in self.stretches(key):
                for table in tables:
                    head, *path = [key] if key in table.schema.names else key.split(".")
                    yield pc.struct_field(table.column(head), path) if path else table.column(head)

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        start = 0
        with self._reading():
            for length, tables in self.stretches(None):
                end = start + length
                if mask is None or mask.slice(start, length).true_count:
                    for table in tables:
                        yield from self._table_rows(table, start, mask)
                        start += table.num_rows
                start = end

    def _table_rows(self, table: Any, start: int, mask: Mask | None) -> Iterator[Row]:
        numbers: Iterable[int] = range(self.first + start, self.first + start + table.num_rows)
        if mask is not None:
            inside = mask.slice(start, table.num_rows)
            numbers, table = compress(numbers, inside.to_pylist()), table.filter(inside)
        for number, values in zip(numbers, table.to_pylist(), strict=True):
            yield Row(self.origin, number, values)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{self.origin}: no readable {self.kind}: {error}") from error


class LoadedTable(TablePart):
    """A table in memory: a piece of a stream, whose first row has the number `first`."""

    def __init__(self, origin: str, table: Any, first: int) -> None:
        super().__init__(origin)
        self._table = table
        self.first = first

    def schema(self) -> pa.Schema:
        return self._table.schema

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        yield self._table.num_rows, [self._table]


class ParquetFile(TablePart):
    """A `.parquet` file as a dataset part; row groups of which no row is kept are not read."""

    kind = "Parquet file"

    def schema(self) -> pa.Schema:
        return pq.read_schema(self.origin)

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        size, columns = (ROWS_PER_BATCH, None) if key is None else (RATINGS_PER_BATCH, [key])
        with pq.ParquetFile(self.origin, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                batches = file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False)
                yield file.metadata.row_group(group).num_rows, batches


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
                size = ROWS_PER_BATCH if key is None else block.num_rows
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


def _leaf_names(fields: Any, prefix: str = "") -> list[str]:
    """All columns of a schema or struct type, nested ones with dots."""
    names = []
    for field in fields:
        names.append(f"{prefix}{field.name}")
        if pa.types.is_struct(field.type):
            names += _leaf_names(field.type, f"{prefix}{field.name}.")
    return names
