"""Datasets on disk for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskset, OpenCodeTasksetConfig

from tests.support.rows import write_rows as write_jsonl

__all__ = ["Rows", "row", "tasks", "taskset", "write_csv", "write_jsonl", "write_parquet"]

Rows = Sequence[Mapping[str, Any]]


def write_parquet(path: Path, rows: Rows, *, rows_per_group: int | None = None) -> Path:
    """Write the rows with the types that Arrow infers."""
    pq.write_table(_table(rows), path, row_group_size=rows_per_group)
    return path


def write_csv(path: Path, rows: Rows) -> Path:
    """Write the rows with a header line."""
    pyarrow.csv.write_csv(_table(rows), path)
    return path


def _table(rows: Rows) -> Any:
    # Arrow takes the columns of the first row for all.
    columns = dict.fromkeys(name for found in rows for name in found)
    return pa.Table.from_pylist([{name: found.get(name) for name in columns} for found in rows])


def taskset(dataset: Path | str, **options: Any) -> OpenCodeTaskset:
    """The taskset of a dataset on disk."""
    return OpenCodeTaskset(OpenCodeTasksetConfig(dataset=str(dataset), **options))


def tasks(dataset: Path | str, **options: Any) -> list[OpenCodeTask]:
    """All tasks of a dataset on disk."""
    return list(taskset(dataset, **options))


def row(number: int, **columns: Any) -> dict[str, Any]:
    """A good row, told apart by its number."""
    return {"question": f"What is {number} + 1?", "answer": str(number + 1), **columns}
