"""Finds what `dataset` names: the samples, a local file, folder or glob, or a dataset on the Hub.

Invariant of a CSV file, which is read block by block: a cell is text, whatever it looks like (an id "007" stays as it
is), and an empty cell is not a value; only the difficulty column is read as numbers.
"""

import csv
import glob
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from opencode_env.samples import SAMPLES_PATH
from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.errors import DatasetError, nearest_name
from opencode_env.taskset.folders.reading import task_directories
from opencode_env.taskset.sources.datasets_library import is_saved_dataset, open_saved_dataset
from opencode_env.taskset.sources.jsonl_file import JsonlFile
from opencode_env.taskset.sources.part import ROWS_PER_BATCH, ParquetFile, Part, TablePart
from opencode_env.taskset.sources.splits import pick_split, split_of_file
from opencode_env.taskset.sources.task_folders import TaskFolders

# The longest row that can be read, and how much of the file is read at a time.
_BLOCK_BYTES = 16 << 20


class CsvFile(TablePart):
    """A `.csv` file as a dataset part."""

    kind = "CSV file"

    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.string()) for name in self._header])

    def ratings(self, key: str) -> Iterator[Any]:
        before = 0
        for column in super().ratings(key):
            yield self._numbers(pc.utf8_trim_whitespace(column), key, before)
            before += len(column)

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        columns = self._header if key is None else [key]
        with pyarrow.csv.open_csv(
            self.origin,
            read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=True,
            ),
        ) as reader:
            for block in reader:
                size = ROWS_PER_BATCH if key is None else block.num_rows
                yield block.num_rows, (block.slice(start, size) for start in range(0, block.num_rows, size))

    def _numbers(self, cells: Any, key: str, before: int) -> Any:
        try:
            return pc.cast(cells, pa.float64())
        except pa.ArrowInvalid:
            pass
        # Cell by cell by the same rule: Python's float() takes cells, such as 1_0, that Arrow does not.
        for row, cell in enumerate(cells, start=before + 1):
            try:
                pc.cast(cell, pa.float64())
            except pa.ArrowInvalid:
                raise DatasetError(
                    f'{self.origin} row {row}: column "{key}" holds {cell.as_py()!r}; difficulty_key needs a '
                    f"column of numbers"
                ) from None
        raise AssertionError("Arrow casts every cell, but not all of them")

    @cached_property
    def _header(self) -> list[str]:
        try:
            with open(self.origin, encoding="utf-8-sig", newline="") as file:
                header = next(csv.reader(file), [])
        except (OSError, ValueError, csv.Error) as error:
            raise DatasetError(f"{self.origin}: no readable CSV file: {error}") from error
        if len(set(header)) != len(header):
            twice = sorted({name for name in header if header.count(name) > 1})
            raise DatasetError(f"{self.origin}: the header names {', '.join(twice)} more than once")
        return header


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
        applies = "applies to Hub datasets and folders of files only: set it to None"
        raise DatasetError(f'dataset "{name}": dataset_subset {applies}')
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
