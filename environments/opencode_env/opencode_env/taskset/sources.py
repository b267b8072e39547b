"""The way from a taskset's config to its rows: find the parts, check the columns, filter, read.

The parts are those of the samples, a local file, folder or glob, or a dataset on the Hub.

The difficulty filter sees all ratings before the first row is read (a stream is filtered as it
comes); the columns of a part are checked before a row of it is read; an empty result is an error.
"""

import csv
import glob
import json
import logging
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError, create_model

from opencode_env.errors import DatasetError
from opencode_env.samples import SAMPLES_PATH
from opencode_env.taskset.config import OpenCodeTasksetConfig, asked_columns
from opencode_env.taskset.difficulty_filter import FilterReport, Mask, RewardRange, floats
from opencode_env.taskset.folders import read_folder, task_directories
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import ABSENT, Row, nearest_name

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_NAMES = {word: split for split, words in _WORDS.items() for word in words}
_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}")


def split_of_file(path: Path) -> str:
    """The split that the file's name or folder says, else `train`."""
    shard = _SHARD.fullmatch(path.stem)
    first_word = re.split(r"[^a-z]", path.stem.lower())[0]
    named = [_NAMES[word] for word in (first_word, path.parent.name.lower()) if word in _NAMES]
    return named[0] if named else shard["split"] if shard else "train"


def pick_split(name: str, splits: Sequence[str], wanted: str | None) -> str:
    """The split to use of those that dataset `name` has."""
    if wanted is not None:
        for split in (wanted, _NAMES.get(wanted, wanted)):
            if split in splits:
                return split
        raise DatasetError(f'dataset "{name}": no split "{wanted}"; {nearest_name(wanted, splits)}')
    if "train" in splits:
        return "train"
    if len(splits) == 1:
        return splits[0]
    raise DatasetError(f'dataset "{name}": set dataset_split, {nearest_name("train", splits)}')


ROWS_PER_BATCH = 256
RATINGS_PER_BATCH = 1 << 13
# Column chunks are streamed through a buffer of this size: a row group may be the whole file.
_BUFFER_BYTES = 1 << 18
# The longest row that can be read, and how much of the file is read at a time.
_BLOCK_BYTES = 16 << 20


class DatasetPart(ABC):
    """One file or table."""

    first = 1
    """The number of its first row."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        """The file or dataset, as its rows and messages name it."""

    @abstractmethod
    def column_names(self) -> list[str]:
        """Its columns; nested ones with dots."""

    def has_column(self, key: str) -> bool:
        return key in self.column_names()

    @abstractmethod
    def ratings(self, key: str) -> Iterator[Any]:
        """Column `key` as Arrow arrays that follow each other, one value per row; no other column is read."""

    @abstractmethod
    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those whose entry in `mask` is true; reads as it goes."""


class TablePart(DatasetPart):
    """A part that Arrow reads, in stretches of rows that can be skipped."""

    kind = "table"
    """What it is called in messages."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Its columns with their types."""

    @abstractmethod
    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        """Lengths of stretches, each with its tables or batches, which are read when they are iterated. With a `key`,
        other columns may be missing in them."""

    def column_names(self) -> list[str]:
        with self._reading():
            return _leaf_names(self.schema())

    def ratings(self, key: str) -> Iterator[Any]:
        with self._reading():
            for _, tables in self.stretches(key):
                for table in tables:
                    head, *path = [key] if key in table.schema.names else key.split(".")
                    yield pc.struct_field(table.column(head), path) if path else table.column(head)

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        start = 0
        with self._reading():
            for length, tables in self.stretches(None):
                end = start + length
                if mask is None or mask.slice(start, length).true_count:
                    for table in tables:
                        yield from self._table_rows(table, start, mask)
                        start += table.num_rows
                start = end

    def _table_rows(self, table: Any, start: int, mask: Mask | None) -> Iterator[Row]:
        numbers: Iterable[int] = range(self.first + start, self.first + start + table.num_rows)
        if mask is not None:
            inside = mask.slice(start, table.num_rows)
            numbers, table = compress(numbers, inside.to_pylist()), table.filter(inside)
        for number, values in zip(numbers, table.to_pylist(), strict=True):
            yield Row(self.origin, number, values)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{self.origin}: no readable {self.kind}: {error}") from error


class ParquetFile(TablePart):
    """A `.parquet` file as a dataset part; row groups of which no row is kept are not read."""

    kind = "Parquet file"

    def schema(self) -> pa.Schema:
        return pq.read_schema(self.origin)

    def stretches(self, key: str | None) -> Iterator[tuple[int, Iterable[Any]]]:
        size, columns = (ROWS_PER_BATCH, None) if key is None else (RATINGS_PER_BATCH, [key])
        with pq.ParquetFile(self.origin, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                batches = file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False)
                yield file.metadata.row_group(group).num_rows, batches


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


def _leaf_names(fields: Any, prefix: str = "") -> list[str]:
    """All columns of a schema or struct type, nested ones with dots."""
    names = []
    for field in fields:
        names.append(f"{prefix}{field.name}")
        if pa.types.is_struct(field.type):
            names += _leaf_names(field.type, f"{prefix}{field.name}.")
    return names


class JsonlFile(DatasetPart):
    """A `.jsonl` file as a dataset part."""

    def column_names(self) -> list[str]:
        rows = islice(self.rows(None), 100)
        return list(dict.fromkeys(path for row in rows for path in _paths(row.values)))

    def has_column(self, key: str) -> bool:
        row = None
        for row in self.rows(None):
            if row.get(key) is not ABSENT:
                return True
        return row is None

    def ratings(self, key: str) -> Iterator[Any]:
        # pydantic skips what the model does not name, which is faster than building the whole row.
        place = Field(None, validation_alias=AliasChoices(key, AliasPath(*key.split("."))))
        model = create_model("Rating", value=(Any, place))
        numbers = (self._number(number, line, key, model) for number, line in self._lines())
        while batch := list(islice(numbers, 20_000)):
            yield floats(batch)

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        """The rows in order, or those that `mask` keeps; lines that it drops are not parsed."""
        for number, line in self._lines() if mask is None else compress(self._lines(), mask.to_pylist()):
            yield self._row(number, line)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with open(self.origin, "rb") as file:
            for number, line in enumerate(file, start=1):
                stripped = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
                if stripped:
                    yield number, stripped

    def _row(self, number: int, line: bytes) -> Row:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{self.origin} row {number}: no valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise DatasetError(f"{self.origin} row {number}: a JSON object is needed, not {type(values).__name__}")
        return Row(self.origin, number, values)

    def _number(self, number: int, line: bytes, key: str, model: type[BaseModel]) -> float:
        try:
            value: object = vars(model.model_validate_json(line))["value"]
        except ValidationError:
            # What pydantic cannot read, the row's own parser takes or names.
            value = self._row(number, line).cell(key)
        if value is None:
            return math.nan
        number_like = isinstance(value, int | float) and not isinstance(value, bool)
        if not number_like or (isinstance(value, int) and abs(value) > sys.float_info.max):
            problem = f"holds {repr(value)[:200]}; difficulty_key needs a column of numbers"
            Row(self.origin, number, {}).refuse(key, problem)
        return float(value)  # type: ignore[arg-type]


def _paths(values: Any, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")


class ArrowDataset(TablePart):
    """A `datasets.Dataset` as a dataset part; stretches of which no row is kept are not read."""

    def __init__(self, dataset: Any, origin: str, first: int = 1) -> None:
        super().__init__(origin)
        self.first = first
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


def open_saved_dataset(folder: Path, split: str | None) -> ArrowDataset:
    """The saved dataset in `folder`, or its `split`."""
    import datasets

    try:
        saved: Any = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{folder}: no readable saved dataset: {error}") from error
    several = isinstance(saved, datasets.DatasetDict)
    picked = pick_split(str(folder), list(saved) if several else [str(saved.split or "train")], split)
    return ArrowDataset(saved[picked] if several else saved, str(folder))


def open_hub_dataset(config: OpenCodeTasksetConfig) -> ArrowDataset:
    """The configured Hub dataset, downloaded if it is not in the cache yet."""
    return ArrowDataset(_load(config, streaming=False), config.dataset_name)


def stream_hub_dataset(config: OpenCodeTasksetConfig) -> Iterator[ArrowDataset]:
    """The configured Hub dataset as small parts, fetched as they are asked for."""
    import datasets

    first = 1
    for table in _load(config, streaming=True).with_format("arrow").iter(batch_size=64):
        yield ArrowDataset(datasets.Dataset(datasets.table.InMemoryTable(table)), config.dataset_name, first)
        first += table.num_rows


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


AT_ONCE = 128
"""Directories that are read before the first of them is a task."""

logger = logging.getLogger("verifiers.v1.opencode_env.taskset")


class TaskFolders(DatasetPart):
    """Task directories in the order of their names; what each says about itself are its columns. Those that cannot be
    honoured are refused together, or left out (`skip_unsupported`), before the first row; of more than `AT_ONCE`, so
    many at a time, before the first row of each stretch."""

    def __init__(self, root: Path, directories: list[Path], config: OpenCodeTasksetConfig) -> None:
        super().__init__(str(root))
        self._root = root
        self._directories = directories
        self._config = config

    def column_names(self) -> list[str]:
        return _columns(self._first)

    def ratings(self, key: str) -> Iterator[Any]:
        for row in self._all:
            found = row.get(key)
            yield pa.array([found if isinstance(found, int | float) else None], pa.float64())

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        if mask is not None:
            return compress(self._all, mask.to_pylist())
        later = range(AT_ONCE, len(self._directories), AT_ONCE)
        return chain(self._first, chain.from_iterable(map(self._read, later)))

    @cached_property
    def _all(self) -> list[Row]:
        return list(self.rows(None))

    @cached_property
    def _first(self) -> list[Row]:
        return self._read(0)

    def _read(self, start: int) -> list[Row]:
        read: list[Row] = []
        refused: list[str] = []
        for number, directory in enumerate(self._directories[start : start + AT_ONCE], start=start + 1):
            try:
                read.append(read_folder(directory, self._root, number))
            except DatasetError as error:
                refused.append(str(error))
        # A column that is asked for and in none of them is a mistake of the configuration's, and told as such.
        if set(asked_columns(self._config).values()).issubset(_columns(read)):
            reasons = [self._unmappable(row) for row in read]
            read = [row for row, why in zip(read, reasons, strict=True) if not why]
            refused += filter(None, reasons)
        if refused:
            self._tell(refused, left=len(read))
        return read

    def _unmappable(self, row: Row) -> str:
        try:
            RowMapper(self._config).task_data(row)
        except ValueError as error:
            return str(error) if isinstance(error, DatasetError) else f"{row.origin}: {error}"
        return ""

    def _tell(self, refused: list[str], left: int) -> None:
        count = f"{len(refused)} of {len(self._directories)} task directories"
        listed = "".join(f"\n  {why}" for why in refused)
        if self._config.skip_unsupported and (left or len(self._directories) > AT_ONCE):
            logger.warning('dataset "%s": %s are left out (skip_unsupported):%s', self._root, count, listed)
            return
        way = "" if self._config.skip_unsupported else "; --env.taskset.skip-unsupported leaves them out"
        raise DatasetError(f'dataset "{self._root}": {count} cannot be honoured here{way}:{listed}')


def _columns(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.values))


def read_rows(config: OpenCodeTasksetConfig, *, asked: Mapping[str, str] | None = None) -> Iterator[Row]:
    """The rows that `config` selects, in the dataset's order, read as they are asked for; `asked` are the columns that
    must exist, by option, if not those of `config`. A `DatasetError` where a file, a column or any row is missing."""
    parts: Iterable[DatasetPart] | None = find_local_parts(config)
    if config.skip_unsupported and not any(isinstance(part, TaskFolders) for part in parts or ()):
        raise DatasetError(f'dataset "{config.dataset_name}": skip_unsupported applies to folders of task directories')
    streamed = parts is None and config.streaming
    if parts is None:
        parts = stream_hub_dataset(config) if streamed else [open_hub_dataset(config)]
    columns = asked_columns(config) if asked is None else dict(asked)
    rows = _selected(parts, config, columns, streamed=streamed)
    first = next(rows, None)
    if first is None:
        raise DatasetError(f'dataset "{config.dataset_name}" holds no rows')
    yield first
    yield from rows


def _selected(
    parts: Iterable[DatasetPart], config: OpenCodeTasksetConfig, asked: dict[str, str], *, streamed: bool
) -> Iterator[Row]:
    if config.difficulty_key is None:
        for part in parts:
            yield from _checked(part, asked).rows(None)
        return
    wanted = RewardRange(config.difficulty_key, config.min_avg_reward, config.max_avg_reward, config.keep_unrated)
    report = FilterReport()
    asked["difficulty_key"] = wanted.key
    filtered: Iterable[tuple[DatasetPart, Mask]] = (
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


def _checked(part: DatasetPart, asked: dict[str, str]) -> DatasetPart:
    for option, key in asked.items():
        if not part.has_column(key):
            nearest = nearest_name(key, part.column_names())
            raise DatasetError(f'{part.origin}: {option} "{key}" names no column; {nearest}')
    return part


_FORMATS: dict[str, Callable[[str], DatasetPart]] = {".jsonl": JsonlFile, ".parquet": ParquetFile, ".csv": CsvFile}
_SUFFIXES = ", ".join(_FORMATS)


def find_local_parts(config: OpenCodeTasksetConfig) -> list[DatasetPart] | None:
    """The parts of the configured dataset, or `None` if it is one on the Hub; a `DatasetError` where the path does not
    exist, or an option does not apply to what is there."""
    path, split = _local_path(config), config.dataset_split
    if path is None:
        return None
    name = config.dataset_name
    if config.revision is not None:
        raise DatasetError(f'dataset "{name}" is local: revision applies to Hub datasets only')
    saved = (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()
    if path.is_dir() and not saved:
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


def _folder_parts(folder: Path, config: OpenCodeTasksetConfig) -> list[DatasetPart]:
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


def _parts(name: str, files: list[Path], split: str | None, *, all_splits: bool = False) -> list[DatasetPart]:
    if not all_splits:
        picked = pick_split(name, list(dict.fromkeys(map(split_of_file, files))), split)
        files = [path for path in files if split_of_file(path) == picked]
    formats = sorted({path.suffix for path in files})
    if len(formats) > 1:
        raise DatasetError(
            f'dataset "{name}": {" and ".join(formats)} files are mixed; name one kind, as in "{name}/*{formats[0]}"'
        )
    return [_FORMATS[formats[0]](str(path)) for path in files]
