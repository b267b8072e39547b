"""Finds what `dataset` names: the samples, local data, or a dataset on the Hub."""

from pathlib import Path

from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.errors import DatasetError, nearest_name
from opencode_env.taskset.sources.local_files import (
    FORMATS,
    is_glob,
    parts_of_file,
    parts_of_folder,
    parts_of_glob,
)
from opencode_env.taskset.sources.part import Part
from opencode_env.taskset.sources.saved_dataset import is_saved_dataset, open_saved_dataset


def dataset_name(config: OpenCodeTasksetConfig) -> str:
    """The dataset's name, for messages."""
    return config.dataset or "samples"


def find_local_parts(config: OpenCodeTasksetConfig) -> list[Part] | None:
    """The parts of the configured dataset, or `None` if it is one on the Hub.

    Raises:
        DatasetError: The path does not exist, or an option does not apply to what is there.
    """
    path = _local_path(config)
    if path is None:
        return None
    if config.revision is not None:
        raise DatasetError(f'dataset "{dataset_name(config)}" is local: revision applies to Hub datasets only')
    if path.is_dir() and not is_saved_dataset(path):
        return parts_of_folder(path, config.dataset_subset, config.dataset_split)
    if config.dataset_subset is not None:
        raise DatasetError(
            f'dataset "{dataset_name(config)}": dataset_subset applies to Hub datasets and folders of files only'
        )
    if path.is_dir():
        return [open_saved_dataset(path, config.dataset_split)]
    if path.is_file():
        return parts_of_file(path, config.dataset_split)
    return parts_of_glob(str(path), config.dataset_split)


def _local_path(config: OpenCodeTasksetConfig) -> Path | None:
    """The file, folder or glob; `None` for what can only be the name of a Hub dataset."""
    if config.dataset is None:
        from opencode_env.samples import SAMPLES_PATH

        return Path(SAMPLES_PATH)
    path = Path(config.dataset).expanduser()
    if path.exists() or is_glob(config.dataset):
        return path
    if path.suffix not in FORMATS and path.parts[0] not in ("/", ".", "..") and len(path.parts) <= 2:
        return None
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = f"; in {path.parent} {nearest_name(path.name, sorted(siblings))}" if siblings else ""
    raise DatasetError(f'dataset "{config.dataset}": no such file or folder{hint}')
