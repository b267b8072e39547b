"""A Parquet file, read a few hundred rows at a time."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opencode_env.taskset.sources.part import TablePart

_ROWS_PER_BATCH = 256
_RATINGS_PER_BATCH = 1 << 13
# Column chunks are streamed through a buffer of this size: a row group may be the whole file.
_BUFFER_BYTES = 1 << 18


class ParquetFile(TablePart):
    """A `.parquet` file as a dataset part; row groups of which no row is kept are not read."""

    kind = "Parquet file"

    def schema(self) -> pa.Schema:
        return pq.read_schema(self.origin)

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        size, columns = (_ROWS_PER_BATCH, None) if key is None else (_RATINGS_PER_BATCH, [key])
        with pq.ParquetFile(self.origin, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                batches = file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False)
                yield file.metadata.row_group(group).num_rows, batches
