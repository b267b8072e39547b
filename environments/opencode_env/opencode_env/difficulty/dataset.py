"""A local dataset as rows and as Arrow at once: what `join` reads, so that it can write every column back.

The seam to the taskset: files other than Parquet are read by the taskset's own readers, so that a row is here
what it was when the eval's tasks were made of it. A Parquet file keeps its schema, its metadata included.
"""

import glob
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from opencode_env.difficulty.errors import BadInputError, NothingUsableError
from opencode_env.difficulty.inference import ColumnTypes
from opencode_env.difficulty.progress import Progress
from opencode_env.difficulty.rated import one_line
from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.locate import find_local_parts

BATCH_ROWS = 8192
SAMPLES = "samples"
"""Names the tasks that ship with the package."""


class Dataset(Protocol):
    """Rows in order, read again for every pass."""

    schema: pa.Schema
    rows: int
    notes: list[str]
    """What is written in another form than it was read."""
    rewrites: bool
    """Whether the Arrow form was made here, so that it could mean something else."""

    def batches(self) -> Iterator[tuple[list[Row], pa.RecordBatch]]:
        """The rows with their Arrow form.

        Raises:
            BadInputError: the data is damaged.
        """


class ParquetDataset:
    """One Parquet file."""

    rewrites = False

    def __init__(self, path: Path) -> None:
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f'dataset "{path}" is not a Parquet file that can be read: {one_line(error)}') from None
        self._path = path
        self.rows = int(self._file.metadata.num_rows)
        self.notes: list[str] = []
        self.schema: pa.Schema = self._file.schema_arrow
        if not self.rows:
            raise NothingUsableError(f'dataset "{path}" has no rows')

    def batches(self) -> Iterator[tuple[list[Row], pa.RecordBatch]]:
        number = 0
        try:
            for batch in self._file.iter_batches(batch_size=BATCH_ROWS):
                rows = [Row(str(self._path), number + i, v) for i, v in enumerate(batch.to_pylist(), start=1)]
                yield rows, batch
                number += len(rows)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f'dataset "{self._path}" is damaged: {one_line(error)}') from None


class RowDataset:
    """Any other local dataset: its column types are found in a first pass over its rows."""

    rewrites = True

    def __init__(self, name: str, config: OpenCodeTasksetConfig) -> None:
        self._name, self._config = name, config
        types = ColumnTypes(name, config.answer_key)
        self.rows = 0
        rows = self._rows()
        with Progress("reading the dataset", 0, "rows") as progress:
            while chunk := list(islice(rows, BATCH_ROWS)):
                types.see([row.values for row in chunk])
                self.rows += len(chunk)
                progress.add(len(chunk))
        self._types = types
        self.schema = types.schema()
        self.notes = types.notes
        if not self.rows:
            raise NothingUsableError(f'dataset "{name}" has no rows')

    def batches(self) -> Iterator[tuple[list[Row], pa.RecordBatch]]:
        rows = self._rows()
        while chunk := list(islice(rows, BATCH_ROWS)):
            yield chunk, self._types.batch([row.values for row in chunk])

    def _rows(self) -> Iterator[Row]:
        try:
            for part in find_local_parts(self._config) or []:
                yield from part.rows(None)
        except DatasetError as error:
            raise BadInputError(str(error)) from None
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f'dataset "{self._name}" cannot be read: {one_line(error)}') from None


def open_dataset(name: str, config: OpenCodeTasksetConfig) -> Dataset:
    """Open the local dataset `name`: a file, a folder, a glob, a folder saved by `datasets`, or "samples".

    `config` says which split of a folder is meant, and in which column the form of numbers matters (the answers').

    Raises:
        BadInputError: nothing is there, or it cannot be read.
        NothingUsableError: it has no rows.
    """
    path = Path(name).expanduser()
    if name == SAMPLES and not path.exists():
        return RowDataset(name, config.model_copy(update={"dataset": None}))
    if not path.exists() and not glob.glob(str(path), recursive=True):
        raise BadInputError(f'dataset "{name}" does not exist (joining reads local data: save a Hub dataset first)')
    if path.is_file() and path.suffix == ".parquet":
        return ParquetDataset(path)
    whole = {"dataset_split": None, "dataset_subset": None} if path.is_file() else {}
    return RowDataset(name, config.model_copy(update={"dataset": name} | whole))
