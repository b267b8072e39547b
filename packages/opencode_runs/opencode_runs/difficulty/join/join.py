"""Writing a dataset back with what a rating found: same rows, same order, more columns.

Invariant: the output has every row of the dataset once and no other; what found no partner on either side is
counted and named; the file appears whole or not at all.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from opencode_env.taskset import OpenCodeTasksetConfig
from opencode_env.taskset.row import Row
from pydantic import BaseModel, Field

from opencode_runs.difficulty.figures import COUNTS, default_ks
from opencode_runs.difficulty.join.dataset import Dataset, open_dataset
from opencode_runs.difficulty.join.matching import Leftovers, MatchBy, Matcher, RowKeys, column_options
from opencode_runs.difficulty.outputs import check_output, replacing
from opencode_runs.difficulty.rate import Rating, Source, Tally, pass_at_k, rate
from opencode_runs.difficulty.rated import METADATA_KEY
from opencode_runs.traces.errors import BadInputError, NothingUsableError
from opencode_runs.traces.progress import Progress
from opencode_runs.traces.reading import RunReport
from opencode_runs.traces.runs import find_trace_files

LARGEST_K = 64
"""pass@k columns are written for powers of two up to this."""


@dataclass(frozen=True)
class JoinOptions:
    model: str | None = None
    env: str | None = None
    per_model: bool = False
    by: MatchBy = "auto"
    id_key: str | None = None
    """Column whose value is the id of a row; None: the taskset's, else "id"."""
    taskset: dict[str, str] = field(default_factory=dict)
    """Column options of the taskset that go before those of the runs' saved configs."""
    threshold: float = 1.0
    seat: str | None = None
    replace_columns: bool = False
    force: bool = False
    names: int = 5
    """How many unmatched rows and tasks are named."""


class JoinFigures(BaseModel):
    output: Path
    columns: list[str]
    rows: int = 0
    rated_rows: int = 0
    """Rows that got a mean reward (from the first source, if there are several)."""
    matched_by_key: int = 0
    matched_by_id: int = 0
    unmatched_rows: Leftovers = Field(default_factory=Leftovers)
    tasks: int = 0
    tasks_matched_twice: int = 0
    unmatched_tasks: Leftovers = Field(default_factory=Leftovers)
    changed_identity: Leftovers = Field(default_factory=Leftovers)
    """Rows whose task would be another one when it is read back from the output."""
    notes: list[str]
    runs: list[RunReport]


def join(name: str, runs: Sequence[Path], output: Path, options: JoinOptions) -> JoinFigures:
    """Write the dataset `name` to the Parquet file `output`, with the figures of its tasks in `runs`.

    Raises:
        BadInputError: an input cannot be read, the output exists, a column would be replaced, or it is not said
            which of several models is meant.
        NothingUsableError: no row matches any task.
    """
    check_output(output, force=options.force)
    config = column_options(find_trace_files(list(runs)), options.taskset)
    dataset = open_dataset(name, config)
    rating = rate(list(runs), threshold=options.threshold, seat=options.seat)
    sources = _choose_sources(rating, options)
    prefixes = _column_prefixes(sources, options)
    ks = [k for k in default_ks(rating) if k <= LARGEST_K]
    columns = [column for prefix in prefixes for column in _columns(prefix, ks)]
    _check_columns(dataset, columns, options)
    schema = _extended(dataset.schema, prefixes, ks, _provenance(name, rating, sources, prefixes))
    matcher = Matcher([rating.sources[source] for source in sources], options.by, options.names)
    mixtures = [line for source in sources for line in rating.sources[source].mixtures(source.model)]
    figures = JoinFigures(output=output, columns=columns, notes=[*dataset.notes, *mixtures], runs=rating.runs)
    with replacing([output]) as (temporary,), pq.ParquetWriter(temporary, schema) as writer:
        keys = _write(dataset, writer, matcher, config, options, ks, figures)
        _finish(figures, matcher, keys)
    return figures


def join_text(figures: JoinFigures) -> str:
    """What was written and how it matched, for a terminal."""
    matched = figures.matched_by_key + figures.matched_by_id
    return (
        f"{figures.output}: {figures.rows:,} rows, {figures.rated_rows:,} of them rated\n"
        f"matched: {matched:,} rows ({figures.matched_by_key:,} by key, {figures.matched_by_id:,} by id) "
        f"with {figures.tasks - figures.unmatched_tasks.count:,} of {figures.tasks:,} tasks\n"
        f"columns: {', '.join(figures.columns)}"
    )


def join_warnings(figures: JoinFigures) -> list[str]:
    """What a reader of the output should know, a line each."""
    lines = [
        *figures.notes,
        *figures.unmatched_rows.warning("rows of the dataset have no task in the runs; their figures are null"),
        *figures.unmatched_tasks.warning("tasks of the runs have no row in the dataset; their figures are lost"),
        *figures.changed_identity.warning("rows are another task when read back from the output"),
    ]
    if figures.tasks_matched_twice:
        lines.append(f"{figures.tasks_matched_twice:,} tasks match several rows; each of these has the task's figures")
    return lines


def _choose_sources(rating: Rating, options: JoinOptions) -> list[Source]:
    """The sources whose figures are written: one, or all that fit with `per_model`."""
    if not rating.sources:
        raise NothingUsableError("the runs hold no episode")
    known = sorted(rating.sources)
    fitting = [s for s in known if options.model in (None, s.model) and options.env in (None, s.env)]
    named = ", ".join(f'model "{s.model}" of env "{s.env}"' for s in known)
    if not fitting:
        raise BadInputError(f"the runs have nothing of the model or env named; they have: {named}")
    if len(fitting) > 1 and not options.per_model:
        raise BadInputError(
            f"the runs have several sources ({named}): choose with --model and --env, or write all with --per-model"
        )
    return fitting


def _column_prefixes(sources: Sequence[Source], options: JoinOptions) -> list[str]:
    """The column prefix of each source: none, or with `per_model` its model (and env, if they differ)."""
    if not options.per_model:
        return [""] * len(sources)
    several = len({source.env for source in sources}) > 1
    names = [f"{source.env}_{source.model}" if several else source.model for source in sources]
    # Dots would read as nested columns.
    return [re.sub(r"[^0-9A-Za-z-]+", "_", name).strip("_") + "_" for name in names]


def _check_columns(dataset: Dataset, columns: list[str], options: JoinOptions) -> None:
    if len(set(columns)) < len(columns):
        raise BadInputError("two models give the same column prefix: join them one by one with --model")
    taken = [column for column in columns if column in dataset.schema.names]
    if taken and not options.replace_columns:
        raise BadInputError(
            f"the dataset already has the columns {', '.join(taken)}: replace them with --replace-columns, "
            "or write others with --per-model"
        )


def _columns(prefix: str, ks: Sequence[int]) -> dict[str, pa.DataType]:
    """The columns of one source, and what they hold."""
    kinds = {prefix + name: pa.int64() if count else pa.float64() for name, count in COUNTS.items()}
    return kinds | {f"{prefix}pass_at_{k}": pa.float64() for k in ks}


def _arrays(tallies: Sequence[Tally | None], ks: Sequence[int]) -> list[pa.Array]:
    """The columns of one source for some rows, in the order of `_columns`; a row without a tally is null."""
    values = [[None if tally is None else getattr(tally, name) for tally in tallies] for name in COUNTS]
    values += [[None if tally is None else pass_at_k(tally.attempts, tally.passes, k) for tally in tallies] for k in ks]
    return [pa.array(found, type=kind) for found, kind in zip(values, _columns("", ks).values(), strict=True)]


def _extended(schema: pa.Schema, prefixes: Sequence[str], ks: Sequence[int], about: str) -> pa.Schema:
    """`schema` with the columns of every prefix at its end (replacing any of the same name) and `about` as metadata."""
    added = {name: kind for prefix in prefixes for name, kind in _columns(prefix, ks).items()}
    fields = [own for own in schema if own.name not in added]
    fields += [pa.field(name, kind) for name, kind in added.items()]
    return pa.schema(fields, metadata=_with_features(schema.metadata or {}, added) | {METADATA_KEY: about.encode()})


def _with_features(metadata: dict[bytes, bytes], added: dict[str, pa.DataType]) -> dict[bytes, bytes]:
    """`datasets` reads a file by the feature list in its metadata: a list without the new columns is wrong."""
    rest = {key: value for key, value in metadata.items() if key != b"huggingface"}
    try:
        parsed = json.loads(metadata[b"huggingface"])
        for name, kind in added.items():
            dtype = "int64" if kind == pa.int64() else "float64"
            parsed["info"]["features"][name] = {"dtype": dtype, "_type": "Value"}
    except (ValueError, TypeError, KeyError):
        return rest
    return rest | {b"huggingface": json.dumps(parsed).encode()}


def _provenance(name: str, rating: Rating, sources: Sequence[Source], prefixes: Sequence[str]) -> str:
    """What the output says about itself, as JSON: runs, models, sampling, versions, time."""
    described = []
    for source, prefix in zip(sources, prefixes, strict=True):
        found = rating.sources[source]
        tallies = found.tasks.values()
        described.append(
            {
                **source._asdict(),
                "prefix": prefix,
                "sampling": [json.loads(text) for text in found.sampling],
                "verifiers": list(found.versions),
                "attempts": sum(tally.attempts for tally in tallies),
                "errors": sum(tally.errors + tally.unscored for tally in tallies),
            }
        )
    about = {
        "format": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "opencode_env": version("opencode-env"),
        "dataset": name,
        "threshold": rating.threshold,
        "runs": [{"path": str(run.path), "episodes": run.episodes} for run in rating.runs],
        "sources": described,
    }
    return json.dumps(about, ensure_ascii=False)


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
        for rows, batch in dataset.chunks():
            identities = [keys.find(row) for row in rows]
            tallies = [matcher.match(identity, figures.rows + i) for i, identity in enumerate(identities, start=1)]
            arrays = [batch.column(name) for name in own]
            for source in zip(*tallies, strict=True):
                arrays += _arrays(source, ks)
            writer.write_table(pa.Table.from_arrays(arrays, schema=writer.schema))
            if dataset.rewrites:
                for row, identity, values in zip(rows, identities, batch.to_pylist(), strict=True):
                    if written_keys.find(Row(row.origin, row.number, values)).key != identity.key:
                        figures.changed_identity.add(row.place, options.names)
            figures.rows += len(rows)
            figures.rated_rows += sum(tally is not None and tally.attempts > 0 for tally, *_ in tallies)
            progress.update(len(rows))
    return keys


def _finish(figures: JoinFigures, matcher: Matcher, keys: RowKeys) -> None:
    """Complete the figures, or refuse a join in which nothing fits."""
    refusal = f" ({keys.refused:,} rows are not tasks of OpenCodeTaskset: {keys.first_refusal})" if keys.refused else ""
    figures.matched_by_key, figures.matched_by_id = matcher.by_key, matcher.by_id
    figures.unmatched_rows, figures.unmatched_tasks = matcher.rows_left, matcher.tasks_left()
    figures.tasks, figures.tasks_matched_twice = matcher.tasks, matcher.shared
    if not (matcher.by_key or matcher.by_id):
        raise NothingUsableError(
            f"no row matches a task: rows are called {', '.join(figures.unmatched_rows.first)}; tasks are called "
            f"{', '.join(figures.unmatched_tasks.first)}{refusal}; name the dataset that was rated, or an id column "
            "with --id-key"
        )
    if keys.refused:
        figures.notes.append(f"matched by id only{refusal}")
