"""Finds what `dataset` names: the samples, a local file, folder or glob, or a dataset on the Hub."""

import glob
from collections.abc import Callable
from pathlib import Path

from opencode_env.samples import SAMPLES_PATH
from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.errors import DatasetError, nearest_name
from opencode_env.taskset.folders.reading import task_directories
from opencode_env.taskset.sources.csv_file import CsvFile
from opencode_env.taskset.sources.datasets_library import is_saved_dataset, open_saved_dataset
from opencode_env.taskset.sources.jsonl_file import JsonlFile
from opencode_env.taskset.sources.part import ParquetFile, Part
from opencode_env.taskset.sources.splits import pick_split, split_of_file
from opencode_env.taskset.sources.task_folders import TaskFolders

_FORMATS: dict[str, Callable[[str], Part]] = {".jsonl": JsonlFile, ".parquet": ParquetFile, ".csv": CsvFile}
_SUFFIXES = ", ".join(_FORMATS)


def find_local_parts(config: OpenCodeTasksetConfig) -> list[Part] | None:
    """The parts of the configured dataset, or `None` if it is one on the Hub.

    Raises:
        DatasetError: the path does not exist, or an option does not apply to what is there.
    """
    path, split = _local_path(config), config.dataset_split
    if path is None:
        return None
    name = config.dataset_name
    if config.revision is not None:
        raise DatasetError(f'dataset "{name}" is local: revision applies to Hub datasets only')
    if path.is_dir() and not is_saved_dataset(path):
        return _folder_parts(path, config)
    if config.dataset_subset is not None:
        raise DatasetError(
            f'dataset "{name}": dataset_subset applies to Hub datasets and folders of files only: set it to None'
        )
    if path.is_dir():
        return [open_saved_dataset(path, split)]
    if path.is_file():
        if path.suffix not in _FORMATS:
            raise DatasetError(f'dataset "{path}": files can be {_SUFFIXES}, not "{path.suffix}"')
        return _parts(str(path), [path], split or split_of_file(path))
    files = [Path(found) for found in sorted(glob.glob(str(path), recursive=True)) if Path(found).suffix in _FORMATS]
    if not files:
        raise DatasetError(f'dataset "{path}": no {_SUFFIXES} file matches')
    return _parts(str(path), files, split, all_splits=split is None)


def _local_path(config: OpenCodeTasksetConfig) -> Path | None:
    """The file, folder or glob; `None` for what can only be the name of a Hub dataset."""
    if config.dataset is None:
        return Path(SAMPLES_PATH)
    path = Path(config.dataset).expanduser()
    if path.exists() or glob.has_magic(config.dataset):
        return path
    if path.suffix not in _FORMATS and path.parts[0] not in ("/", ".", "..") and len(path.parts) <= 2:
        return None
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = f"; in {path.parent} {nearest_name(path.name, sorted(siblings))}" if siblings else ""
    raise DatasetError(f'dataset "{config.dataset}": no such file or folder{hint}')


def _folder_parts(folder: Path, config: OpenCodeTasksetConfig) -> list[Part]:
    """All data files of one split below `folder`, or below its sub-folder that is the subset."""
    subset = config.dataset_subset
    if subset is not None:
        if not (folder / subset).is_dir():
            folders = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
            raise DatasetError(f'dataset "{folder}": no sub-folder "{subset}"; {nearest_name(subset, folders)}')
        folder = folder / subset
    if directories := task_directories(folder):
        if config.dataset_split is not None:
            raise DatasetError(f'dataset "{folder}": task directories have no splits; leave out dataset_split')
        return [TaskFolders(folder, directories, config)]
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in _FORMATS and path.is_file()]
    files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not files:
        raise DatasetError(f'dataset "{folder}": no {_SUFFIXES} file in this folder')
    return _parts(str(folder), files, config.dataset_split)


def _parts(name: str, files: list[Path], split: str | None, *, all_splits: bool = False) -> list[Part]:
    """The files of one split, or of all; their format must be one."""
    if not all_splits:
        picked = pick_split(name, list(dict.fromkeys(map(split_of_file, files))), split)
        files = [path for path in files if split_of_file(path) == picked]
    formats = sorted({path.suffix for path in files})
    if len(formats) > 1:
        raise DatasetError(
            f'dataset "{name}": {" and ".join(formats)} files are mixed; name one kind, as in "{name}/*{formats[0]}"'
        )
    return [_FORMATS[formats[0]](str(path)) for path in files]
