"""The way from a taskset's config to its rows: find the parts, check the columns, filter, read.

Invariant: the difficulty filter sees all ratings before the first row is read (a stream is filtered as it
comes); the columns of a part are checked before a row of it is read; an empty result is an error.
"""

from collections.abc import Iterator

from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.difficulty_filter import Band, BandReport
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources.arrow_columns import column_of, table_rows
from opencode_env.taskset.sources.hub import open_hub_dataset, stream_hub_tables
from opencode_env.taskset.sources.locate import dataset_name, find_local_parts
from opencode_env.taskset.sources.part import Columns, Part, TableColumns, require_column


def read_rows(config: OpenCodeTasksetConfig) -> Iterator[Row]:
    """The rows that `config` selects, in the dataset's order, read as they are asked for.

    Raises:
        DatasetError: There is no such dataset or column, a file cannot be read, or no row is left.
    """
    name = dataset_name(config)
    parts = find_local_parts(config)
    if parts is not None:
        rows = _selected(name, parts, config)
    elif config.streaming:
        rows = _streamed(name, config)
    else:
        rows = _selected(name, [open_hub_dataset(config)], config)
    first = next(rows, None)
    if first is None:
        raise DatasetError(f'dataset "{name}" holds no rows')
    yield first
    yield from rows


def _selected(name: str, parts: list[Part], config: OpenCodeTasksetConfig) -> Iterator[Row]:
    band = _band(config)
    if band is None:
        for part in parts:
            _check_columns(part, config)
            yield from part.rows(None)
        return
    report = BandReport()
    masks = []
    for part in parts:
        _check_columns(part, config)
        masks.append(band.mask_of_all(part.ratings(band.key), part.origin, report))
    report.finish(band, name)
    for part, mask in zip(parts, masks, strict=True):
        if mask.any():
            yield from part.rows(mask)


def _streamed(name: str, config: OpenCodeTasksetConfig) -> Iterator[Row]:
    band = _band(config)
    report = BandReport()
    number = 1
    for table in stream_hub_tables(config):
        if number == 1:
            _check_columns(TableColumns(name, table.schema), config)
        mask = None if band is None else band.mask(column_of(table, band.key), name, report, first=number)
        yield from table_rows(name, table, number, mask)
        number += table.num_rows
    if band is not None and number > 1:
        report.finish(band, name)


def _band(config: OpenCodeTasksetConfig) -> Band | None:
    if config.difficulty_key is None:
        return None
    return Band(config.difficulty_key, config.min_avg_reward, config.max_avg_reward, config.keep_unrated)


def _check_columns(columns: Columns, config: OpenCodeTasksetConfig) -> None:
    """Every column that was asked for by name must exist; those found by convention may be missing."""
    asked = {
        "question_key": config.question_key,
        "answer_key": None if config.answer_key == "answer" else config.answer_key,
        "id_key": config.id_key,
        "image_key": config.image_key,
        "setup_key": config.setup_key,
        "verify_key": config.verify_key,
        "system_prompt_key": config.system_prompt_key,
        "difficulty_key": config.difficulty_key,
    }
    for option, key in asked.items():
        if key is not None:
            require_column(columns, option, key)
