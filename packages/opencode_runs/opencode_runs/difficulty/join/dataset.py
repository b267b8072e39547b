"""A local dataset as rows and as Arrow at once: what `join` reads, so that it can write every column back.

The seam to the taskset: files other than Parquet are read by the taskset's own readers, so that a row is here
what it was when the eval's tasks were made of it. A Parquet file keeps its schema, its metadata included, and is never
held in memory; of other datasets, whose columns may be mixed, the types are found from all rows.

Invariant: a value is only ever written in another form that means the same task: a number among texts as the
text of it, a single command among lists as a list of one, a plain question among message lists as one message.
Anything else that Arrow cannot hold is refused with the column's name.
"""

import glob
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.reading import find_local_parts

from opencode_runs.difficulty.rated import BATCH_ROWS, ParquetInput, one_line
from opencode_runs.traces.errors import BadInputError, NothingUsableError
from opencode_runs.traces.progress import Progress

AS_TEXT, AS_LIST, AS_IT_IS = "written as text", "written as lists", "written as it is"
NUMBERS = {"numbers", "whole numbers", "decimal numbers"}


@dataclass(frozen=True)
class Dataset:
    """Rows in order with their Arrow form, which is another one than was read where `rewrites` is set."""

    schema: pa.Schema
    rows: int
    chunks: Callable[[], Iterator[tuple[Sequence[Row], pa.Table | pa.RecordBatch]]]
    """Reads the rows; raises `BadInputError` if the data is damaged."""
    rewrites: bool = False
    notes: list[str] = field(default_factory=list)
    """What is written in another form."""


def open_dataset(name: str, config: OpenCodeTasksetConfig) -> Dataset:
    """Open the local dataset `name`: a file, a folder, a glob, a folder saved by `datasets`, or our "samples".

    `config` says which split of a folder is meant, and in which column the form of numbers matters (the answers').

    Raises:
        BadInputError: nothing is there, or it cannot be read.
        NothingUsableError: it has no rows.
    """
    path = Path(name).expanduser()
    if name == "samples" and not path.exists():
        return _of_rows(config.model_copy(update={"dataset": None}))
    if not path.exists() and not glob.glob(str(path), recursive=True):
        raise BadInputError(f'dataset "{name}" does not exist (joining reads local data: save a Hub dataset first)')
    if path.is_file() and path.suffix == ".parquet":
        return _of_parquet(path)
    whole = {"dataset_split": None, "dataset_subset": None} if path.is_file() else {}
    return _of_rows(config.model_copy(update={"dataset": name} | whole))


def _of_parquet(path: Path) -> Dataset:
    file = ParquetInput(path, f'dataset "{path}"')

    def chunks() -> Iterator[tuple[Sequence[Row], pa.RecordBatch]]:
        number = 0
        for batch in file.batches():
            yield [Row(str(path), number + i, values) for i, values in enumerate(batch.to_pylist(), start=1)], batch
            number += batch.num_rows

    return Dataset(file.schema, file.rows, chunks)


def _of_rows(config: OpenCodeTasksetConfig) -> Dataset:
    name = config.dataset_name
    rows: list[Row] = []
    try:
        with Progress("reading the dataset", 0, "rows") as progress:
            for row in (row for part in find_local_parts(config) or [] for row in part.rows(None)):
                rows.append(row)
                progress.update(1)
    except DatasetError as error:
        raise BadInputError(str(error)) from None
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f'dataset "{name}" cannot be read: {one_line(error)}') from None
    if not any(row.values for row in rows):
        raise NothingUsableError(f'dataset "{name}" has no rows')
    either = {config.question_key, config.setup_key or "setup", config.verify_key or "verify"}
    table, notes = _table(name, rows, config.answer_key, either)

    def chunks() -> Iterator[tuple[Sequence[Row], pa.Table]]:
        for start in range(0, len(rows), BATCH_ROWS):
            yield rows[start : start + BATCH_ROWS], table.slice(start, BATCH_ROWS)

    return Dataset(table.schema, len(rows), chunks, rewrites=True, notes=notes)


def _table(name: str, rows: Sequence[Row], exact: str, either: Set[str]) -> tuple[pa.Table, list[str]]:
    """The rows, and notes on mixed columns; in column `exact`, the answers', 7 and 7.0 are not the same, and in those
    of `either` the taskset reads a text as the list that it is written as."""
    arrays, notes = {}, []
    for column in dict.fromkeys(key for row in rows for key in row.values):
        values = [row.values.get(column) for row in rows]
        kinds = {_kind(value, column == exact) for value in values if value is not None}
        form = _form(kinds)
        if len(kinds) > 1 and not (form == AS_LIST and column in either):
            notes.append(f'column "{column}" mixes {" and ".join(sorted(kinds))}: {form}')
        try:
            arrays[column] = pa.array([_unmixed(value, form, kinds) for value in values])
        except (pa.ArrowException, OverflowError) as error:
            raise BadInputError(
                f'column "{column}" of "{name}" cannot be written to Parquet: {one_line(error)}'
            ) from None
    return pa.table(arrays), notes


def _kind(value: object, exact: bool) -> str:
    if isinstance(value, bool):
        return "true and false"
    if isinstance(value, int | float):
        return f"{'whole' if isinstance(value, int) else 'decimal'} numbers" if exact else "numbers"
    if isinstance(value, list):
        return "messages" if value and isinstance(value[0], dict) else "lists"
    return "text" if isinstance(value, str) else type(value).__name__


def _form(kinds: set[str]) -> str:
    """How a column that holds values of `kinds` is written."""
    if "text" in kinds and len(kinds) > 1 and kinds <= {"text", "messages", "lists"}:
        return AS_LIST
    return AS_TEXT if len(kinds) > 1 and kinds <= {"text", *NUMBERS} else AS_IT_IS


def _unmixed(value: object, form: str, kinds: set[str]) -> object:
    """`value` in the form in which its column is written."""
    if form == AS_TEXT and isinstance(value, int | float):
        return str(value)
    if form == AS_LIST and isinstance(value, str):
        return [{"role": "user", "content": value}] if "messages" in kinds else [value]
    return value
