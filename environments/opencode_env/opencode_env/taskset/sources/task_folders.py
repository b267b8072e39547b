"""A folder of task directories as a dataset part."""

import logging
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, compress
from pathlib import Path
from typing import Any

import pyarrow as pa

from opencode_env.taskset.columns import asked_columns
from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.folders.reading import read_folder
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.part import Part

AT_ONCE = 128
"""Directories that are read before the first of them is a task."""

logger = logging.getLogger("verifiers.v1.opencode_env.taskset")


class TaskFolders(Part):
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
        """The rows of one stretch of directories."""
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
        """Why the row is not a task; empty if it is one."""
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
