"""A rated dataset on disk: the Parquet file that `join` writes, and the columns that rating adds to it.

Reading is by column and by batch, so that a figure over a large file never loads its questions.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from opencode_env.difficulty.errors import BadInputError, NothingUsableError

REWARD_COLUMN = "avg_reward"
METADATA_KEY = b"opencode_difficulty"
BATCH_ROWS = 16384
LABEL_COLUMNS = ("id", "name", "question")
NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_null)
"""What a difficulty column may hold; a column of nulls is one in which nothing was rated."""


def model_prefix(name: str) -> str:
    """A column prefix made from a model or env name; dots would read as nested columns."""
    return re.sub(r"[^0-9A-Za-z-]+", "_", name).strip("_") + "_"


class RatedRow(NamedTuple):
    """What the commands after `join` need of a row."""

    number: int
    """Position in the file, from 0."""
    label: str
    reward: float | None
    """None for a row that was never rated (null, NaN or infinite)."""
    attempts: int | None
    passes: int | None


@dataclass(frozen=True)
class RatedFile:
    """An opened Parquet file with a difficulty column."""

    path: Path
    file: pq.ParquetFile
    column: str
    prefix: str

    @property
    def schema(self) -> pa.Schema:
        """The file's Arrow schema, its metadata included."""
        return self.file.schema_arrow

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return int(self.file.metadata.num_rows)

    @property
    def about(self) -> dict[str, object]:
        """What `join` recorded about the runs; empty for a file from elsewhere."""
        stored = (self.schema.metadata or {}).get(METADATA_KEY)
        if stored is None:
            return {}
        try:
            parsed = json.loads(stored)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def has(self, figure: str) -> bool:
        """Whether the file has `figure` (a column without its prefix)."""
        return self.prefix + figure in self.schema.names

    def read(self) -> Iterator[RatedRow]:
        """The rows, without their content."""
        label = next((name for name in LABEL_COLUMNS if name in self.schema.names), None)
        counts = [self.prefix + name for name in ("attempts", "passes") if self.has(name)]
        wanted = [self.column, *counts, *([label] if label else [])]
        number = 0
        for batch in self.batches(wanted):
            columns = {name: batch.column(name).to_pylist() for name in dict.fromkeys(wanted)}
            nothing = [None] * batch.num_rows
            attempts = columns.get(self.prefix + "attempts", nothing)
            passes = columns.get(self.prefix + "passes", nothing)
            labels = columns[label] if label else nothing
            for row in zip(labels, columns[self.column], attempts, passes, strict=True):
                yield RatedRow(number, _label(row[0], number), finite(row[1]), row[2], row[3])
                number += 1

    def reach(self) -> tuple[float, float]:
        """The least and greatest value of the difficulty column, widened to hold 0 and 1."""
        low, high = 0.0, 1.0
        for batch in self.batches([self.column]):
            values = [v for v in map(finite, batch.column(self.column).to_pylist()) if v is not None]
            low, high = min([low, *values]), max([high, *values])
        return low, high

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of the file, of all columns or the named ones.

        Raises:
            BadInputError: the file is damaged.
        """
        try:
            yield from self.file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f'"{self.path}" is damaged: {one_line(error)}') from None


def open_rated(path: Path, column: str = REWARD_COLUMN) -> RatedFile:
    """Open the Parquet file at `path` and find its difficulty `column`.

    Raises:
        BadInputError: no such file, not Parquet, no such column (the candidates are listed), or no numbers in it.
        NothingUsableError: the file has no row.
    """
    if not path.is_file():
        raise BadInputError(f'rated dataset "{path}" ' + ("is not a file" if path.exists() else "does not exist"))
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f'"{path}" is not a Parquet file that can be read: {one_line(error)}') from None
    schema = file.schema_arrow
    if column not in schema.names:
        rated = [name for name in schema.names if name.endswith(REWARD_COLUMN)]
        hint = f"rated columns: {', '.join(rated)}" if rated else f"columns: {', '.join(schema.names)}"
        raise BadInputError(f'"{path}" has no column "{column}" ({hint}): name one with --column')
    kind = schema.field(column).type
    if not any(test(kind) for test in NUMBERS):
        raise BadInputError(f'column "{column}" of "{path}" holds {kind}, not numbers')
    if file.metadata.num_rows == 0:
        raise NothingUsableError(f'"{path}" has no rows')
    prefix = column.removesuffix(REWARD_COLUMN) if column.endswith(REWARD_COLUMN) else ""
    return RatedFile(path, file, column, prefix)


def one_line(error: BaseException) -> str:
    """The first line of an error of pyarrow's, which like to be long."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def finite(value: float | None) -> float | None:
    """A difficulty as a number, None if there is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def _label(value: object, number: int) -> str:
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return " ".join(str(value).split())[:80] if value not in (None, "") else f"row {number}"
