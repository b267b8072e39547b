"""A folder of task directories as a dataset part."""

from collections.abc import Iterator
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa

from opencode_env.taskset.difficulty_filter import Mask
from opencode_env.taskset.folders.reading import read_folder, read_folders
from opencode_env.taskset.row import ABSENT, Row
from opencode_env.taskset.sources.part import Part


class TaskFolders(Part):
    """Task directories in the order of their names; what each says about itself are its columns."""

    def __init__(self, root: Path, directories: list[Path]) -> None:
        super().__init__(str(root))
        self._root = root
        self._directories = directories

    def column_names(self) -> list[str]:
        return list(dict.fromkeys(name for row in self._all for name in row.values))

    def ratings(self, key: str) -> Iterator[Any]:
        for row in self._all:
            found = row.get(key)
            yield pa.array([found if isinstance(found, int | float) and found is not ABSENT else None], pa.float64())

    def rows(self, mask: Mask | None) -> Iterator[Row]:
        if mask is None:
            return read_folders(self._directories, self._root)
        return compress(self._all, mask.to_pylist())

    @cached_property
    def _all(self) -> list[Row]:
        return [read_folder(path, self._root, number) for number, path in enumerate(self._directories, start=1)]
