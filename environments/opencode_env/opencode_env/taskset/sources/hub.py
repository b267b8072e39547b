"""Datasets on the Hub: downloaded once and memory-mapped, or streamed.

Downloads and conversions show the progress bars of the `datasets` library.
"""

from collections.abc import Iterator
from typing import Any

from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.sources.saved_dataset import ArrowDataset
from opencode_env.taskset.sources.splits import pick_split

_ROWS_PER_TABLE = 64


def open_hub_dataset(config: OpenCodeTasksetConfig) -> ArrowDataset:
    """The configured Hub dataset, downloaded if it is not in the cache yet.

    Raises:
        DatasetError: There is no such dataset, subset, split or revision, or it cannot be fetched.
    """
    return ArrowDataset(_load(config, streaming=False), config.dataset_name)


def stream_hub_tables(config: OpenCodeTasksetConfig) -> Iterator[Any]:
    """The configured Hub dataset as small Arrow tables, fetched as they are asked for.

    Raises:
        DatasetError: As `open_hub_dataset`.
    """
    yield from _load(config, streaming=True).with_format("arrow").iter(_ROWS_PER_TABLE)


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
