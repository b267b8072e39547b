"""A table of the `datasets` library, memory-mapped, read a few hundred rows at a time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.sources.part import TablePart
from opencode_env.taskset.sources.splits import pick_split

_ROWS_PER_BATCH = 256
_RATINGS_PER_BATCH = 1 << 13


class ArrowDataset(TablePart):
    """A `datasets.Dataset` as a dataset part; stretches of which no row is kept are not read."""

    def __init__(self, dataset: Any, origin: str) -> None:
        super().__init__(origin)
        # In this format cells are not decoded: a picture stays the bytes that it is.
        self._dataset = dataset.with_format("arrow")

    def schema(self) -> pa.Schema:
        return self._dataset.features.arrow_schema

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        table, size = self._dataset, _ROWS_PER_BATCH
        if key is not None:
            top = key if key in table.column_names else key.partition(".")[0]
            table, size = table.select_columns([top]), _RATINGS_PER_BATCH
        for start in range(0, len(table), size):
            yield min(size, len(table) - start), map(table.__getitem__, [slice(start, start + size)])


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
    several = isinstance(saved, datasets.DatasetDict)
    picked = pick_split(str(folder), list(saved) if several else [str(saved.split or "train")], split)
    return ArrowDataset(saved[picked] if several else saved, str(folder))
