"""A Parquet file, read a few hundred rows at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.arrow_columns import column_of, has_field, leaf_names, table_rows

_ROWS_PER_BATCH = 256
_RATINGS_PER_BATCH = 1 << 13
# Column chunks are streamed through a buffer of this size: a row group may be the whole file.
_BUFFER_BYTES = 1 << 18


class ParquetFile:
    """A `.parquet` file as a dataset part."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def origin(self) -> str:
        """The file's path."""
        return str(self._path)

    def column_names(self) -> list[str]:
        """The columns of the file's schema, nested ones with dots."""
        return leaf_names(self._schema)

    def has_column(self, key: str) -> bool:
        """Whether `key` names a column of the schema."""
        return has_field(self._schema, key)

    def ratings(self, key: str) -> Iterator[Any]:
        """Column `key`; no other column is read."""
        with self._open() as file:
            for batch in file.iter_batches(_RATINGS_PER_BATCH, columns=[key], use_threads=False):
                yield column_of(batch, key)

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those that `mask` keeps; row groups without any are not read."""
        with self._open() as file:
            start = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                inside = None if mask is None else mask[start : start + size]
                if inside is None or inside.any():
                    yield from self._group_rows(file, group, start, inside)
                start += size

    def _group_rows(self, file: Any, group: int, start: int, mask: Mask | None) -> Iterator[Row]:
        offset = 0
        for batch in file.iter_batches(_ROWS_PER_BATCH, row_groups=[group], use_threads=False):
            inside = None if mask is None else mask[offset : offset + batch.num_rows]
            if inside is None or inside.any():
                yield from table_rows(self.origin, batch, start + offset + 1, inside)
            offset += batch.num_rows

    @cached_property
    def _schema(self) -> Any:
        with self._open() as file:
            return file.schema_arrow

    @contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            with pq.ParquetFile(self._path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{self.origin}: no readable Parquet file: {error}") from error
