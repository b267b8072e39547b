"""The way from a taskset's config to its rows: find the parts, check the columns, filter, read.

The parts are those of the samples, a local file, folder or glob, or a dataset on the Hub.

Invariant: the difficulty filter sees all ratings before the first row is read (a stream is filtered as it
comes); the columns of a part are checked before a row of it is read; an empty result is an error.
"""

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from opencode_env.samples import SAMPLES_PATH
from opencode_env.taskset.columns import asked_columns
from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.difficulty_filter import FilterReport, Mask, RewardRange
from opencode_env.taskset.errors import DatasetError, nearest_name
from opencode_env.taskset.folders.reading import task_directories
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources import datasets_library
from opencode_env.taskset.sources.jsonl_file import JsonlFile
from opencode_env.taskset.sources.part import CsvFile, LoadedTable, ParquetFile, Part
from opencode_env.taskset.sources.splits import pick_split, split_of_file
from opencode_env.taskset.sources.task_folders import TaskFolders


def read_rows(config: OpenCodeTasksetConfig, *, asked: Mapping[str, str] | None = None) -> Iterator[Row]:
    """The rows that `config` selects, in the dataset's order, read as they are asked for.

    `asked` are the columns that must exist, by option, where they are not those of `config`.

    Raises:
        DatasetError: there is no such dataset or column, a file cannot be read, or no row is left.
    """
    parts: Iterable[Part] | None = find_local_parts(config)
    if config.skip_unsupported and not any(isinstance(part, TaskFolders) for part in parts or ()):
        raise DatasetError(f'dataset "{config.dataset_name}": skip_unsupported applies to folders of task directories')
    streamed = parts is None and config.streaming
    if parts is None:
        parts = _stream(config) if streamed else [datasets_library.open_hub_dataset(config)]
    columns = asked_columns(config) if asked is None else dict(asked)
    rows = _selected(parts, config, columns, streamed=streamed)
    first = next(rows, None)
    if first is None:
        raise DatasetError(f'dataset "{config.dataset_name}" holds no rows')
    yield first
    yield from rows


def _stream(config: OpenCodeTasksetConfig) -> Iterator[Part]:
    first = 1
    for table in datasets_library.stream_hub_tables(config):
        yield LoadedTable(config.dataset_name, table, first)
        first += table.num_rows


def _selected(
    parts: Iterable[Part], config: OpenCodeTasksetConfig, asked: dict[str, str], *, streamed: bool
) -> Iterator[Row]:
    if config.difficulty_key is None:
        for part in parts:
            yield from _checked(part, asked).rows(None)
        return
    wanted = RewardRange(config.difficulty_key, config.min_avg_reward, config.max_avg_reward, config.keep_unrated)
    report = FilterReport()
    asked["difficulty_key"] = wanted.key
    filtered: Iterable[tuple[Part, Mask]] = (
        (_checked(part, asked), wanted.mask(part.ratings(wanted.key), part.origin, report, first=part.first))
        for part in parts
    )
    if not streamed:
        filtered = list(filtered)
        report.finish(wanted, config.dataset_name)
    for part, mask in filtered:
        if mask.true_count:
            yield from part.rows(mask)
    if streamed and report.before:
        report.finish(wanted, config.dataset_name)


def _checked(part: Part, asked: dict[str, str]) -> Part:
    """The part, which has the columns that must exist."""
    for option, key in asked.items():
        if not part.has_column(key):
            nearest = nearest_name(key, part.column_names())
            raise DatasetError(f'{part.origin}: {option} "{key}" names no column; {nearest}')
    return part


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
    if path.is_dir() and not datasets_library.is_saved_dataset(path):
        return _folder_parts(path, config)
    if config.dataset_subset is not None:
        applies = "applies to Hub datasets and folders of files only: set it to None"
        raise DatasetError(f'dataset "{name}": dataset_subset {applies}')
    if path.is_dir():
        return [datasets_library.open_saved_dataset(path, split)]
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
