"""What a dataset is made of: parts that can be read without being held in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.errors import DatasetError, nearest_name
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.arrow_columns import has_field, leaf_names


class Columns(Protocol):
    """Something that has columns, and a name for messages."""

    @property
    def origin(self) -> str:
        """The name that its rows carry."""

    def column_names(self) -> list[str]:
        """Its columns; nested ones with dots."""

    def has_column(self, key: str) -> bool:
        """Whether `key` names a column, literally or as a path."""


class Part(Columns, Protocol):
    """One file or table whose rows can be read more than once."""

    def ratings(self, key: str) -> Iterator[Any]:
        """Column `key` as Arrow arrays that follow each other, one value per row."""

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those whose entry in `mask` is true; reads as it goes."""


@dataclass(frozen=True)
class TableColumns:
    """The columns of an Arrow schema."""

    origin: str
    schema: Any

    def column_names(self) -> list[str]:
        """The schema's columns, nested ones with dots."""
        return leaf_names(self.schema)

    def has_column(self, key: str) -> bool:
        """Whether `key` names a column of the schema."""
        return has_field(self.schema, key)


def require_column(columns: Columns, option: str, key: str) -> None:
    """Raise `DatasetError` if the column that `option` names does not exist."""
    if not columns.has_column(key):
        raise DatasetError(
            f'{columns.origin}: {option} "{key}" names no column; {nearest_name(key, columns.column_names())}'
        )
