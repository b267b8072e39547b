"""Datasets of the `datasets` library: saved on disk, on the Hub (downloaded once), or streamed from there.

Tables are memory-mapped and read a few hundred rows at a time. Downloads show the library's progress bars.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.sources.part import RATINGS_PER_BATCH, ROWS_PER_BATCH, TablePart
from opencode_env.taskset.sources.splits import pick_split


class ArrowDataset(TablePart):
    """A `datasets.Dataset` as a dataset part; stretches of which no row is kept are not read."""

    def __init__(self, dataset: Any, origin: str) -> None:
        super().__init__(origin)
        # In this format cells are not decoded: a picture stays the bytes that it is.
        self._dataset = dataset.with_format("arrow")

    def schema(self) -> pa.Schema:
        return self._dataset.features.arrow_schema

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        table, size = self._dataset, ROWS_PER_BATCH
        if key is not None:
            top = key if key in table.column_names else key.partition(".")[0]
            table, size = table.select_columns([top]), RATINGS_PER_BATCH
        for start in range(0, len(table), size):
            # A map, so that a stretch that is skipped is not read.
            yield min(size, len(table) - start), map(table.__getitem__, [slice(start, start + size)])


def is_saved_dataset(folder: Path) -> bool:
    """Whether `folder` was written by `save_to_disk`."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def open_saved_dataset(folder: Path, split: str | None) -> ArrowDataset:
    """The saved dataset in `folder`, or its `split`.

    Raises:
        DatasetError: the folder cannot be read, or has no such split.
    """
    import datasets

    try:
        saved: Any = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{folder}: no readable saved dataset: {error}") from error
    several = isinstance(saved, datasets.DatasetDict)
    picked = pick_split(str(folder), list(saved) if several else [str(saved.split or "train")], split)
    return ArrowDataset(saved[picked] if several else saved, str(folder))


def open_hub_dataset(config: OpenCodeTasksetConfig) -> ArrowDataset:
    """The configured Hub dataset, downloaded if it is not in the cache yet.

    Raises:
        DatasetError: there is no such dataset, subset, split or revision, or it cannot be fetched.
    """
    return ArrowDataset(_load(config, streaming=False), config.dataset_name)


def stream_hub_tables(config: OpenCodeTasksetConfig) -> Iterator[Any]:
    """The configured Hub dataset as small Arrow tables, fetched as they are asked for.

    Raises:
        DatasetError: as `open_hub_dataset`.
    """
    yield from _load(config, streaming=True).with_format("arrow").iter(batch_size=64)


def _load(config: OpenCodeTasksetConfig, *, streaming: bool) -> Any:
    import datasets

    name, subset, revision = config.dataset_name, config.dataset_subset, config.revision
    wanted = config.dataset_split or "train"
    options: dict[str, Any] = {"name": subset, "revision": revision, "streaming": streaming}
    try:
        try:
            return datasets.load_dataset(name, split=wanted, **options)
        except ValueError:
            # Perhaps the split. Asking first would need the network even for a dataset in the cache.
            splits = datasets.get_dataset_split_names(name, subset, revision=revision)
            split = pick_split(name, splits, config.dataset_split)
            if split == wanted:
                raise
            return datasets.load_dataset(name, split=split, **options)
    except DatasetError:
        raise
    # RuntimeError is what `datasets` raises for a dataset that needs code of its own to load.
    except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
        raise DatasetError(f'Hub dataset "{name}": {type(error).__name__}: {error}') from error
