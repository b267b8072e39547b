"""A rated dataset on disk: the Parquet file that `join` writes.

Reading is by column and by batch, so that a figure over a large file never loads its questions.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from opencode_runs.traces.errors import BadInputError, NothingUsableError

REWARD_COLUMN = "avg_reward"
METADATA_KEY = b"opencode_difficulty"
BATCH_ROWS = 8192
NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_null)
"""What a difficulty column may hold; a column of nulls is one in which nothing was rated."""


class ParquetInput:
    """An opened Parquet file with rows, called `called` in messages."""

    def __init__(self, path: Path, called: str) -> None:
        self.path, self._called = path, called
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f"{called} is not a Parquet file that can be read: {one_line(error)}") from None
        self.schema: pa.Schema = self._file.schema_arrow
        """With the file's metadata."""
        self.rows = int(self._file.metadata.num_rows)
        if not self.rows:
            raise NothingUsableError(f"{called} has no rows")

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of the file, of all columns or the named ones.

        Raises:
            BadInputError: the file is damaged.
        """
        try:
            yield from self._file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f"{self._called} is damaged: {one_line(error)}") from None


class RatedRow(NamedTuple):
    label: str
    reward: float | None
    """None for a row that was never rated (null, NaN or infinite)."""
    attempts: int | None
    passes: int | None


class RatedFile(ParquetInput):
    def __init__(self, path: Path, column: str) -> None:
        super().__init__(path, f'"{path}"')
        names = self.schema.names
        if column not in names:
            rated = [name for name in names if name.endswith(REWARD_COLUMN)]
            hint = f"rated columns: {', '.join(rated)}" if rated else f"columns: {', '.join(names)}"
            raise BadInputError(f'"{path}" has no column "{column}" ({hint}): name one with --column')
        kind = self.schema.field(column).type
        if not any(test(kind) for test in NUMBERS):
            raise BadInputError(f'column "{column}" of "{path}" holds {kind}, not numbers')
        self.column = column
        self.prefix = column.removesuffix(REWARD_COLUMN) if column.endswith(REWARD_COLUMN) else ""

    @property
    def about(self) -> dict[str, object]:
        """What `join` recorded about the runs; empty for a file from elsewhere."""
        try:
            parsed = json.loads((self.schema.metadata or {}).get(METADATA_KEY, b"{}"))
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def has(self, figure: str) -> bool:
        """Whether the file has `figure` (a column without its prefix)."""
        return self.prefix + figure in self.schema.names

    def read(self) -> Iterator[RatedRow]:
        """The rows, without their content."""
        label = next((name for name in ("id", "name", "question") if name in self.schema.names), None)
        counts = (self.prefix + name if self.has(name) else None for name in ("attempts", "passes"))
        wanted = [label, self.column, *counts]
        number = 0
        for batch in self.batches(list(dict.fromkeys(filter(None, wanted)))):
            nothing = [None] * batch.num_rows
            for cells in zip(*(batch.column(name).to_pylist() if name else nothing for name in wanted), strict=True):
                yield RatedRow(_label(cells[0], number), finite(cells[1]), cells[2], cells[3])
                number += 1

    def reach(self) -> tuple[float, float]:
        """The least and greatest value of the difficulty column, widened to hold 0 and 1."""
        low, high = 0.0, 1.0
        for batch in self.batches([self.column]):
            values = [v for v in map(finite, batch.column(self.column).to_pylist()) if v is not None]
            low, high = min([low, *values]), max([high, *values])
        return low, high


def open_rated(path: Path, column: str = REWARD_COLUMN) -> RatedFile:
    """Open the Parquet file at `path` and find its difficulty `column`.

    Raises:
        BadInputError: no such file, not Parquet, no such column (the candidates are listed), or no numbers in it.
        NothingUsableError: the file has no row.
    """
    if not path.is_file():
        raise BadInputError(f'rated dataset "{path}" ' + ("is not a file" if path.exists() else "does not exist"))
    return RatedFile(path, column)


def one_line(error: BaseException) -> str:
    """The first line of an error of pyarrow's, which like to be long."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def finite(value: float | None) -> float | None:
    """A difficulty as a number, None if there is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def _label(value: object, number: int) -> str:
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return " ".join(str(value).split())[:80] if value not in (None, "") else f"row {number}"
