"""Finds the data files of a local dataset: a file, a folder or a glob."""

import glob
from collections.abc import Callable
from pathlib import Path

from opencode_env.taskset.errors import DatasetError, nearest_name
from opencode_env.taskset.sources.csv_file import CsvFile
from opencode_env.taskset.sources.jsonl_file import JsonlFile
from opencode_env.taskset.sources.parquet_file import ParquetFile
from opencode_env.taskset.sources.part import Part
from opencode_env.taskset.sources.splits import pick_split, split_of_file

FORMATS: dict[str, Callable[[Path], Part]] = {".jsonl": JsonlFile, ".parquet": ParquetFile, ".csv": CsvFile}


def is_glob(name: str) -> bool:
    """Whether `name` is a pattern rather than a path."""
    return glob.has_magic(name)


def parts_of_file(path: Path, split: str | None) -> list[Part]:
    """One file, which is the split that its name says, or `train`.

    Raises:
        DatasetError: Its format is unknown, or `split` is another one.
    """
    if path.suffix not in FORMATS:
        raise DatasetError(f'dataset "{path}": files can be {", ".join(FORMATS)}, not "{path.suffix}"')
    if split is not None:
        pick_split(str(path), [split_of_file(path) or "train"], split)
    return [FORMATS[path.suffix](path)]


def parts_of_glob(pattern: str, split: str | None) -> list[Part]:
    """All files that match, sorted; only those of `split` if one is given.

    Raises:
        DatasetError: None matches, or formats are mixed.
    """
    files = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).suffix in FORMATS]
    if not files:
        raise DatasetError(f'dataset "{pattern}": no {", ".join(FORMATS)} file matches')
    return _parts(pattern, _of_split(pattern, files, split) if split is not None else files)


def parts_of_folder(folder: Path, subset: str | None, split: str | None) -> list[Part]:
    """All data files of one split below `folder`, or below its sub-folder `subset`, sorted.

    Raises:
        DatasetError: There is no such sub-folder or split, no data file, or formats are mixed.
    """
    if subset is not None:
        if not (folder / subset).is_dir():
            folders = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
            raise DatasetError(f'dataset "{folder}": no sub-folder "{subset}"; {nearest_name(subset, folders)}')
        folder = folder / subset
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in FORMATS
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise DatasetError(f'dataset "{folder}": no {", ".join(FORMATS)} file in this folder')
    return _parts(str(folder), _of_split(str(folder), files, split))


def _of_split(name: str, files: list[Path], split: str | None) -> list[Path]:
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(split_of_file(path) or "train", []).append(path)
    return groups[pick_split(name, list(groups), split)]


def _parts(name: str, files: list[Path]) -> list[Part]:
    formats = sorted({path.suffix for path in files})
    if len(formats) > 1:
        raise DatasetError(
            f'dataset "{name}": {" and ".join(formats)} files are mixed; name one kind, as in "{name}/*{formats[0]}"'
        )
    return [FORMATS[formats[0]](path) for path in files]
