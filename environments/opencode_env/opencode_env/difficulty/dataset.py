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

from opencode_env.difficulty.errors import BadInputError, NothingUsableError
from opencode_env.difficulty.inference import ColumnTypes
from opencode_env.difficulty.progress import Progress
from opencode_env.difficulty.rated import BATCH_ROWS, ParquetInput, one_line
from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.locate import find_local_parts

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

    def chunks(self) -> Iterator[tuple[list[Row], pa.RecordBatch]]:
        """The rows with their Arrow form.

        Raises:
            BadInputError: the data is damaged.
        """


class ParquetDataset(ParquetInput):
    """One Parquet file."""

    rewrites = False

    def __init__(self, path: Path) -> None:
        super().__init__(path, f'dataset "{path}"')
        self.notes: list[str] = []

    def chunks(self) -> Iterator[tuple[list[Row], pa.RecordBatch]]:
        number = 0
        for batch in self.batches():
            yield [Row(str(self.path), number + i, v) for i, v in enumerate(batch.to_pylist(), start=1)], batch
            number += batch.num_rows


class RowDataset:
    """Any other local dataset: its column types are found in a first pass over its rows."""

    rewrites = True

    def __init__(self, config: OpenCodeTasksetConfig) -> None:
        self._config = config
        self._types = ColumnTypes(config.dataset_name, config.answer_key)
        self.rows = 0
        with Progress("reading the dataset", 0, "rows") as progress:
            for chunk in self._read():
                self._types.see([row.values for row in chunk])
                self.rows += len(chunk)
                progress.add(len(chunk))
        self.schema, self.notes = self._types.schema()
        if not self.rows:
            raise NothingUsableError(f'dataset "{config.dataset_name}" has no rows')

    def chunks(self) -> Iterator[tuple[list[Row], pa.RecordBatch]]:
        for chunk in self._read():
            yield chunk, self._types.batch([row.values for row in chunk], self.schema)

    def _read(self) -> Iterator[list[Row]]:
        try:
            rows = (row for part in find_local_parts(self._config) or [] for row in part.rows(None))
            while chunk := list(islice(rows, BATCH_ROWS)):
                yield chunk
        except DatasetError as error:
            raise BadInputError(str(error)) from None
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f'dataset "{self._config.dataset_name}" cannot be read: {one_line(error)}') from None


def open_dataset(name: str, config: OpenCodeTasksetConfig) -> Dataset:
    """Open the local dataset `name`: a file, a folder, a glob, a folder saved by `datasets`, or "samples".

    `config` says which split of a folder is meant, and in which column the form of numbers matters (the answers').

    Raises:
        BadInputError: nothing is there, or it cannot be read.
        NothingUsableError: it has no rows.
    """
    path = Path(name).expanduser()
    if name == SAMPLES and not path.exists():
        return RowDataset(config.model_copy(update={"dataset": None}))
    if not path.exists() and not glob.glob(str(path), recursive=True):
        raise BadInputError(f'dataset "{name}" does not exist (joining reads local data: save a Hub dataset first)')
    if path.is_file() and path.suffix == ".parquet":
        return ParquetDataset(path)
    whole = {"dataset_split": None, "dataset_subset": None} if path.is_file() else {}
    return RowDataset(config.model_copy(update={"dataset": name} | whole))
