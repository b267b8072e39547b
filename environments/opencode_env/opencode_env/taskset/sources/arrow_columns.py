"""Finds columns in Arrow schemas and tables by the names that a config uses.

Same rule as `Row.get`: a name is a column literally, else a path with dots into struct columns.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opencode_env.taskset.arrow_buffers import boolean_array
from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.row import Row


def leaf_names(fields: Any, prefix: str = "") -> list[str]:
    """All columns of a schema or struct type, nested ones with dots."""
    names = []
    for field in fields:
        names.append(f"{prefix}{field.name}")
        if pa.types.is_struct(field.type):
            names += leaf_names(list(field.type), f"{prefix}{field.name}.")
    return names


def has_field(fields: Any, key: str) -> bool:
    """Whether `key` names a column of the schema or struct type."""
    by_name = {field.name: field.type for field in fields}
    if key in by_name:
        return True
    head, _, rest = key.partition(".")
    kind = by_name.get(head)
    return bool(rest) and kind is not None and pa.types.is_struct(kind) and has_field(list(kind), rest)


def top_column(fields: Any, key: str) -> str:
    """The column to read for `key`: itself, or the one that it reaches into."""
    return key if any(field.name == key for field in fields) else key.partition(".")[0]


def column_of(table: Any, key: str) -> Any:
    """The array of column `key`; a nested value is null where its parent is."""
    if key in table.schema.names:
        return table.column(key)
    head, *path = key.split(".")
    column = table.column(head)
    for name in path:
        column = pc.struct_field(column, name)
    return column


def table_rows(origin: str, table: Any, first: int, mask: Mask | None) -> Iterator[Row]:
    """The rows of a small table whose first row has the number `first`, or those that `mask` keeps."""
    if mask is None:
        numbers: Any = range(first, first + table.num_rows)
    else:
        numbers = [first + int(position) for position in mask.nonzero()[0]]
        table = table.filter(boolean_array(mask))
    for number, values in zip(numbers, table.to_pylist(), strict=True):
        yield Row(origin, number, values)
