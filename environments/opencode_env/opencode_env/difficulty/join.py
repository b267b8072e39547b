"""Writing a dataset back with what a rating found: same rows, same order, more columns.

Invariant: the output has every row of the dataset once and no other; what found no partner on either side is
counted and named; the file appears whole or not at all.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from opencode_env.difficulty.atomic import check_output, replacing
from opencode_env.difficulty.columns import column_arrays, column_names, extend_schema
from opencode_env.difficulty.dataset import Dataset, open_dataset
from opencode_env.difficulty.errors import BadInputError, NothingUsableError
from opencode_env.difficulty.figures import RunFigures, default_ks, run_figures
from opencode_env.difficulty.join_options import JoinOptions, choose_sources, column_prefixes
from opencode_env.difficulty.keys import RowKeys, column_options
from opencode_env.difficulty.matching import Leftovers, Matcher
from opencode_env.difficulty.progress import Progress
from opencode_env.difficulty.provenance import provenance
from opencode_env.difficulty.rate import rate
from opencode_env.difficulty.runs import find_trace_files
from opencode_env.difficulty.tally import Tally
from opencode_env.taskset import OpenCodeTasksetConfig
from opencode_env.taskset.row import Row

LARGEST_K = 64
"""pass@k columns are written for powers of two up to this."""


class JoinFigures(BaseModel):
    """The answer of `join`."""

    output: Path
    columns: list[str]
    rows: int
    rated_rows: int
    """Rows that got a mean reward (from the first source, if there are several)."""
    matched_by_key: int
    matched_by_id: int
    unmatched_rows: Leftovers
    tasks: int
    tasks_matched_twice: int
    unmatched_tasks: Leftovers
    changed_identity: Leftovers
    """Rows whose task would be another one when it is read back from the output."""
    notes: list[str]
    runs: list[RunFigures]


def join(name: str, runs: Sequence[Path], output: Path, options: JoinOptions) -> JoinFigures:
    """Write the dataset `name` to the Parquet file `output`, with the figures of its tasks in `runs`.

    Raises:
        BadInputError: an input cannot be read, the output exists, a column would be replaced, or it is not said
            which of several models is meant.
        NothingUsableError: no row matches any task.
    """
    check_output(output, force=options.force)
    config = column_options([file.path for file in find_trace_files(list(runs))], options.taskset)
    dataset = open_dataset(name, config)
    rating = rate(list(runs), threshold=options.threshold, seat=options.seat)
    sources = choose_sources(rating, options)
    prefixes = column_prefixes(sources, options)
    ks = [k for k in default_ks(rating) if k <= LARGEST_K]
    columns = [column for prefix in prefixes for column in column_names(prefix, ks)]
    _check_columns(dataset, columns, options)
    schema = extend_schema(dataset.schema, prefixes, ks, provenance(name, rating, sources, prefixes, options))
    matcher = Matcher(rating, sources, options.by, options.names)
    figures = JoinFigures(
        output=output,
        columns=columns,
        rows=0,
        rated_rows=0,
        matched_by_key=0,
        matched_by_id=0,
        unmatched_rows=matcher.rows_left,
        tasks=matcher.tasks,
        tasks_matched_twice=0,
        unmatched_tasks=Leftovers(),
        changed_identity=Leftovers(),
        notes=[*dataset.notes, *(line for s in sources for line in rating.sources[s].mixtures(s.model))],
        runs=[run_figures(run) for run in rating.runs],
    )
    with replacing([output]) as (temporary,), pq.ParquetWriter(temporary, schema) as writer:
        keys = _write(dataset, writer, matcher, config, options, ks, figures)
        _finish(figures, matcher, keys)
    return figures


def _check_columns(dataset: Dataset, columns: list[str], options: JoinOptions) -> None:
    if len(set(columns)) < len(columns):
        raise BadInputError("two models give the same column prefix: join them one by one with --model")
    taken = [column for column in columns if column in dataset.schema.names]
    if taken and not options.replace_columns:
        raise BadInputError(
            f"the dataset already has the columns {', '.join(taken)}: replace them with --replace-columns, "
            "or write others with --per-model"
        )


def _write(
    dataset: Dataset,
    writer: pq.ParquetWriter,
    matcher: Matcher,
    config: OpenCodeTasksetConfig,
    options: JoinOptions,
    ks: Sequence[int],
    figures: JoinFigures,
) -> RowKeys:
    """Write all rows with their figures; count them in `figures`."""
    keys, written_keys = (RowKeys(config, options.id_key, by_key=options.by != "id") for _ in range(2))
    own = [name for name in dataset.schema.names if name not in figures.columns]
    with Progress("joining", dataset.rows, "rows") as progress:
        for rows, batch in dataset.batches():
            identities = [keys.find(row) for row in rows]
            numbers = range(figures.rows + 1, figures.rows + len(rows) + 1)
            tallies = [matcher.match(i, n) for i, n in zip(identities, numbers, strict=True)]
            arrays = [batch.column(name) for name in own]
            for source in zip(*tallies, strict=True):
                arrays += column_arrays(source, ks)
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=writer.schema))
            if dataset.rewrites:
                for row, identity, values in zip(rows, identities, batch.to_pylist(), strict=True):
                    if written_keys.find(Row(row.origin, row.number, values)).key != identity.key:
                        figures.changed_identity.add(partial(_place, row), options.names)
            figures.rows += len(rows)
            figures.rated_rows += sum(_rated(found) for found in tallies)
            progress.add(len(rows))
    return keys


def _place(row: Row) -> str:
    return row.place


def _rated(found: Sequence[Tally | None]) -> bool:
    return found[0] is not None and found[0].attempts > 0


def _finish(figures: JoinFigures, matcher: Matcher, keys: RowKeys) -> None:
    """Complete the figures, or refuse a join in which nothing fits."""
    refusal = f" ({keys.refused:,} rows are no task of OpenCodeTaskset: {keys.first_refusal})" if keys.refused else ""
    if not matcher.matched:
        tasks, rows = matcher.tasks_left(), matcher.rows_left
        raise NothingUsableError(
            f"no row matches a task: rows are called {', '.join(rows.first)}; tasks are called "
            f"{', '.join(tasks.first)}{refusal}; name the dataset that was rated, or an id column with --id-key"
        )
    figures.matched_by_key, figures.matched_by_id = matcher.by_key, matcher.by_id
    figures.unmatched_tasks = matcher.tasks_left()
    figures.tasks_matched_twice = matcher.shared
    if keys.refused:
        figures.notes.append(f"matched by id only{refusal}")
