"""A table of the `datasets` library, memory-mapped, read a few hundred rows at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.arrow_columns import column_of, has_field, leaf_names, table_rows, top_column
from opencode_env.taskset.sources.splits import pick_split

_ROWS_PER_BATCH = 256
_RATINGS_PER_BATCH = 1 << 13


class ArrowDataset:
    """A `datasets.Dataset` as a dataset part."""

    def __init__(self, dataset: Any, origin: str) -> None:
        # In this format cells are not decoded: a picture stays the bytes that it is.
        self._dataset = dataset.with_format("arrow")
        self._origin = origin

    @property
    def origin(self) -> str:
        """The dataset's name or folder."""
        return self._origin

    def column_names(self) -> list[str]:
        """The dataset's columns, nested ones with dots."""
        return leaf_names(self._fields)

    def has_column(self, key: str) -> bool:
        """Whether `key` names a column."""
        return has_field(self._fields, key)

    def ratings(self, key: str) -> Iterator[Any]:
        """Column `key`; no other column is read."""
        column = self._dataset.select_columns([top_column(self._fields, key)])
        for start in range(0, len(column), _RATINGS_PER_BATCH):
            yield column_of(column[start : start + _RATINGS_PER_BATCH], key)

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those that `mask` keeps; stretches without any are not read."""
        for start in range(0, len(self._dataset), _ROWS_PER_BATCH):
            inside = None if mask is None else mask[start : start + _ROWS_PER_BATCH]
            if inside is None or inside.any():
                table = self._dataset[start : start + _ROWS_PER_BATCH]
                yield from table_rows(self._origin, table, start + 1, inside)

    @property
    def _fields(self) -> list[Any]:
        return list(self._dataset.features.arrow_schema)


def is_saved_dataset(folder: Path) -> bool:
    """Whether `folder` was written by `save_to_disk`."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def open_saved_dataset(folder: Path, split: str | None) -> ArrowDataset:
    """The saved dataset in `folder`, or its `split`.

    Raises:
        DatasetError: The folder cannot be read, or has no such split.
    """
    import datasets

    try:
        saved: Any = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{folder}: no readable saved dataset: {error}") from error
    if isinstance(saved, datasets.DatasetDict):
        return ArrowDataset(saved[pick_split(str(folder), list(saved), split)], str(folder))
    pick_split(str(folder), [str(saved.split or "train")], split)
    return ArrowDataset(saved, str(folder))
