"""The way from a taskset's config to its rows: find the parts, check the columns, filter, read.

Invariant: the difficulty filter sees all ratings before the first row is read (a stream is filtered as it
comes); the columns of a part are checked before a row of it is read; an empty result is an error.
"""

from collections.abc import Iterable, Iterator, Mapping

from opencode_env.taskset.columns import asked_columns
from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.difficulty_filter import FilterReport, Mask, RewardRange
from opencode_env.taskset.errors import DatasetError, nearest_name
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.datasets_library import open_hub_dataset, stream_hub_tables
from opencode_env.taskset.sources.locate import find_local_parts
from opencode_env.taskset.sources.part import LoadedTable, Part
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
        parts = _stream(config) if streamed else [open_hub_dataset(config)]
    columns = asked_columns(config) if asked is None else dict(asked)
    rows = _selected(parts, config, columns, streamed=streamed)
    first = next(rows, None)
    if first is None:
        raise DatasetError(f'dataset "{config.dataset_name}" holds no rows')
    yield first
    yield from rows


def _stream(config: OpenCodeTasksetConfig) -> Iterator[Part]:
    first = 1
    for table in stream_hub_tables(config):
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
