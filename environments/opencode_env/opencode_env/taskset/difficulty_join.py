"""`opencode-difficulty join`: a local dataset written back with the figures of a rating; same rows, same order.

A row matches by its key, which `OpenCodeTaskset`'s own mapping computes under the column options of the run's saved
config; if no task has it, by its id, where the id belongs to one task only. Several rows may match the same task
(copies of a question under a taskset that does not tell them apart): each gets its figures.

Files other than Parquet are read by the taskset's own readers, so that a row is here what it was when the eval's tasks
were made of it. A Parquet file keeps its schema, its metadata included, and is never held in memory; of other
datasets, whose columns may be mixed, the types are found from all rows. A value is only ever written in another form
that means the same task; anything else that Arrow cannot hold is refused with the column's name.
"""

import argparse
import glob
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from opencode_runs.console_command import check_output, print_answer, replacing, short, task_label, warn
from opencode_runs.difficulty.rate import COUNTS, AttemptSource, Rating, default_ks, pass_at_k, rate
from opencode_runs.difficulty.rated import BATCH_ROWS, METADATA_KEY, ParquetInput, one_line
from opencode_runs.errors import BadInputError, NothingUsableError
from opencode_runs.progress import Progress
from opencode_runs.traces.reading import RunSettings, TraceFile, TraceFileReport, find_trace_files
from pydantic import BaseModel, Field, ValidationError

from opencode_env.errors import DatasetError
from opencode_env.taskset.cells import identifier
from opencode_env.taskset.config import CONFIGURABLE, OpenCodeTasksetConfig
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import Row
from opencode_env.taskset.sources import find_local_parts

LARGEST_K = 64
"""pass@k columns are written for powers of two up to this."""
OPTIONS = (*CONFIGURABLE, "dataset_split", "dataset_subset")
"""The taskset's options that decide what a row's key is, and which rows of a folder are meant."""
OWN_PREFIX = "opencode_"
_MAX_NAMED = 5
AS_TEXT, AS_LIST, AS_IT_IS = "written as text", "written as lists", "written as it is"
_NUMBERS = {"numbers", "whole numbers", "decimal numbers"}


@dataclass(frozen=True)
class JoinOptions:
    model: str | None = None
    env: str | None = None
    per_model: bool = False
    id_key: str | None = None
    """Column whose value is the id of a row; None: the taskset's, else "id"."""
    taskset: dict[str, str] = field(default_factory=dict)
    """Column options of the taskset that go before those of the runs' saved configs."""
    threshold: float = 1.0
    seat: str | None = None
    replace_columns: bool = False
    force: bool = False


class UnmatchedItems(BaseModel):
    """Things that found no partner: how many, and the first of them."""

    count: int = 0
    first: list[str] = []

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.first) < _MAX_NAMED:
            self.first.append(name)

    def warning(self, what: str) -> list[str]:
        named = f": {', '.join(self.first)}" + (", …" if self.count > len(self.first) else "")
        return [f"{self.count:,} {what}{named if self.first else ''}"] if self.count else []


class JoinFigures(BaseModel):
    output: Path
    columns: list[str]
    rows: int = 0
    rated_rows: int = 0
    """Rows that got a mean reward (from the first source, if there are several)."""
    matched_by_key: int = 0
    matched_by_id: int = 0
    unmatched_rows: UnmatchedItems = Field(default_factory=UnmatchedItems)
    tasks: int = 0
    tasks_matched_twice: int = 0
    unmatched_tasks: UnmatchedItems = Field(default_factory=UnmatchedItems)
    changed_identity: UnmatchedItems = Field(default_factory=UnmatchedItems)
    """Rows whose task would be another one when it is read back from the output."""
    notes: list[str]
    runs: list[TraceFileReport]


def join(name: str, runs: Sequence[Path], output: Path, options: JoinOptions) -> JoinFigures:
    """Write the dataset `name` to the Parquet file `output`, with the figures of its tasks in `runs`.

    Every row is written once; what found no partner on either side is counted and named. A `BadInputError` says what to
    change; a `NothingUsableError`, that no row matches any task.
    """
    check_output(output, force=options.force)
    config = column_options(find_trace_files(runs, "eval"), options.taskset)
    dataset = open_dataset(name, config)
    rating = rate(list(runs), threshold=options.threshold, seat=options.seat)
    sources = _choose_sources(rating, options)
    prefixes = _column_prefixes(sources, options)
    tasks = RatedTasks(rating, sources, prefixes)
    columns: list[str] = tasks.figures.column_names
    if len(set(columns)) < len(columns):
        raise BadInputError("two models give the same column prefix: join them one by one with --model")
    taken = [column for column in columns if column in dataset.schema.names]
    if taken and not options.replace_columns:
        raise BadInputError(
            f"the dataset already has the columns {', '.join(taken)}: replace them with --replace-columns, "
            "or write others with --per-model"
        )
    about = _provenance(name, rating, sources, prefixes)
    metadata = _with_features(dataset.schema.metadata or {}, tasks.figures.schema) | {METADATA_KEY: about.encode()}
    kept = [own for own in dataset.schema if own.name not in columns]
    schema = pa.schema([*kept, *tasks.figures.schema], metadata=metadata)
    mixtures = [line for source in sources for line in rating.sources[source].mixtures(source.model)]
    figures = JoinFigures(output=output, columns=columns, notes=[*dataset.notes, *mixtures], runs=rating.runs)
    with replacing([output]) as (temporary,), pq.ParquetWriter(temporary, schema) as writer:
        keys = _write(dataset, writer, tasks, config, options, figures)
        _finish(figures, tasks, keys)
    return figures


def join_command(options: argparse.Namespace) -> None:
    if options.output.suffix.lower() != ".parquet":
        raise BadInputError(f'output "{options.output}" will hold Parquet: give it a name that ends in .parquet')
    options.taskset = dict(options.taskset)
    chosen = JoinOptions(**{one.name: getattr(options, one.name) for one in fields(JoinOptions)})
    answer = join(options.dataset, options.runs, options.output, chosen)
    warn(line for run in answer.runs for line in run.warnings())
    warn(join_warnings(answer))
    matched = answer.matched_by_key + answer.matched_by_id
    told = (
        f"{answer.output}: {answer.rows:,} rows, {answer.rated_rows:,} of them rated\n"
        f"matched: {matched:,} rows ({answer.matched_by_key:,} by key, {answer.matched_by_id:,} by id) "
        f"with {answer.tasks - answer.unmatched_tasks.count:,} of {answer.tasks:,} tasks\n"
        f"columns: {', '.join(answer.columns)}"
    )
    print_answer(answer, told, as_json=options.json)


def join_warnings(figures: JoinFigures) -> list[str]:
    """Return what a reader of the output should know, a line each."""
    lines = [
        *figures.notes,
        *figures.unmatched_rows.warning("rows of the dataset have no task in the runs; their figures are null"),
        *figures.unmatched_tasks.warning("tasks of the runs have no row in the dataset; their figures are lost"),
        *figures.changed_identity.warning("rows are another task when read back from the output"),
    ]
    if figures.tasks_matched_twice:
        lines.append(f"{figures.tasks_matched_twice:,} tasks match several rows; each of these has the task's figures")
    return lines


def column_options(files: list[TraceFile], given: dict[str, str]) -> OpenCodeTasksetConfig:
    """The taskset options that say which column means what: those of the runs' saved configs, then `given`."""
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise BadInputError(f"--taskset {unknown[0]} is unknown; there are: {', '.join(OPTIONS)}")
    known = [(file.path.parent.name, found) for file in files if (found := _saved(file.settings)) is not None]
    first = known[0][1] if known else {}
    if any(options != first for _, options in known) and not given:
        named = ", ".join(f'"{name}"' for name, _ in known)
        raise BadInputError(
            f"the runs {named} read their datasets by different columns: join them one by one, "
            "or say which column means what with --taskset"
        )
    try:
        return OpenCodeTasksetConfig.model_validate(first | given)
    except ValidationError as error:
        raise BadInputError(f"--taskset: {error.errors()[0]['msg']}") from None


def _saved(settings: RunSettings) -> dict[str, str] | None:
    name = str(settings.taskset.get("id", "")).rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_")
    if not name.startswith(OWN_PREFIX):
        return None
    return {name: value for name in OPTIONS if isinstance(value := settings.taskset.get(name), str)}


@dataclass(frozen=True)
class Dataset:
    """Rows in order with their Arrow form, which is another one than was read where `rewrites` is set."""

    schema: pa.Schema
    rows: int
    chunks: Callable[[], Iterator[tuple[Sequence[Row], pa.Table | pa.RecordBatch]]]
    """Reads the rows; raises `BadInputError` if the data is damaged."""
    rewrites: bool = False
    notes: list[str] = field(default_factory=list)
    """What is written in another form."""


def open_dataset(name: str, config: OpenCodeTasksetConfig) -> Dataset:
    """Open the local dataset `name`: a file, a folder, a glob, a folder saved by `datasets`, or our "samples"; `config`
    says which split of a folder is meant, and which column holds the answers."""
    path = Path(name).expanduser()
    if name == "samples" and not path.exists():
        return _of_rows(config.model_copy(update={"dataset": None}))
    if not path.exists() and not glob.glob(str(path), recursive=True):
        raise BadInputError(f'dataset "{name}" does not exist (joining reads local data: save a Hub dataset first)')
    if path.is_file() and path.suffix == ".parquet":
        return _of_parquet(path)
    whole = {"dataset_split": None, "dataset_subset": None} if path.is_file() else {}
    return _of_rows(config.model_copy(update={"dataset": name} | whole))


def _of_parquet(path: Path) -> Dataset:
    file = ParquetInput(path, f'dataset "{path}"')

    def chunks() -> Iterator[tuple[Sequence[Row], pa.RecordBatch]]:
        number = 0
        for batch in file.batches():
            yield [Row(str(path), number + i, values) for i, values in enumerate(batch.to_pylist(), start=1)], batch
            number += batch.num_rows

    return Dataset(file.schema, file.rows, chunks)


def _of_rows(config: OpenCodeTasksetConfig) -> Dataset:
    name = config.dataset_name
    rows: list[Row] = []
    try:
        with Progress("reading the dataset", 0, "rows") as progress:
            for row in (row for part in find_local_parts(config) or [] for row in part.rows(None)):
                rows.append(row)
                progress.update(1)
    except DatasetError as error:
        raise BadInputError(str(error)) from None
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f'dataset "{name}" cannot be read: {one_line(error)}') from None
    if not any(row.values for row in rows):
        raise NothingUsableError(f'dataset "{name}" has no rows')
    either = {config.question_key, config.setup_key or "setup", config.verify_key or "verify"}
    table, notes = _table(name, rows, config.answer_key, either)

    def chunks() -> Iterator[tuple[Sequence[Row], pa.Table]]:
        for start in range(0, len(rows), BATCH_ROWS):
            yield rows[start : start + BATCH_ROWS], table.slice(start, BATCH_ROWS)

    return Dataset(table.schema, len(rows), chunks, rewrites=True, notes=notes)


def _table(name: str, rows: Sequence[Row], exact: str, either: Set[str]) -> tuple[pa.Table, list[str]]:
    """The rows, and notes on mixed columns; in column `exact`, the answers', 7 and 7.0 are not the same, and in those
    of `either` the taskset reads a text as the list that it is written as."""
    arrays, notes = {}, []
    for column in dict.fromkeys(key for row in rows for key in row.values):
        values = [row.values.get(column) for row in rows]
        kinds = {_kind(value, column == exact) for value in values if value is not None}
        form = _form(kinds)
        if len(kinds) > 1 and not (form == AS_LIST and column in either):
            notes.append(f'column "{column}" mixes {" and ".join(sorted(kinds))}: {form}')
        try:
            arrays[column] = pa.array([_unmixed(value, form, kinds) for value in values])
        except (pa.ArrowException, OverflowError) as error:
            raise BadInputError(
                f'column "{column}" of "{name}" cannot be written to Parquet: {one_line(error)}'
            ) from None
    return pa.table(arrays), notes


def _kind(value: object, exact: bool) -> str:
    if isinstance(value, bool):
        return "true and false"
    if isinstance(value, int | float):
        return f"{'whole' if isinstance(value, int) else 'decimal'} numbers" if exact else "numbers"
    if isinstance(value, list):
        return "messages" if value and isinstance(value[0], dict) else "lists"
    return "text" if isinstance(value, str) else type(value).__name__


def _form(kinds: set[str]) -> str:
    if "text" in kinds and len(kinds) > 1 and kinds <= {"text", "messages", "lists"}:
        return AS_LIST
    return AS_TEXT if len(kinds) > 1 and kinds <= {"text", *_NUMBERS} else AS_IT_IS


def _unmixed(value: object, form: str, kinds: set[str]) -> object:
    if form == AS_TEXT and isinstance(value, int | float):
        return str(value)
    if form == AS_LIST and isinstance(value, str):
        return [{"role": "user", "content": value}] if "messages" in kinds else [value]
    return value


class RowIdentity(NamedTuple):
    key: str | None
    id: str | None


class RowKeys:
    """Finds the identities of a dataset's rows, in order; one object for one pass."""

    def __init__(self, config: OpenCodeTasksetConfig, id_key: str | None) -> None:
        self._mapper = RowMapper(config)
        self._id = id_key or config.id_key or "id"
        self.refused = 0
        """Rows that are not tasks of `OpenCodeTaskset`: they can match by id only."""
        self.first_refusal: str | None = None

    def find(self, row: Row) -> RowIdentity:
        try:
            row_id = identifier(row, self._id)
        except DatasetError:
            row_id = None
        try:
            return RowIdentity(self._mapper.task_data(row).row_key, row_id)
        except DatasetError as error:
            self.refused += 1
            self.first_refusal = self.first_refusal or str(error)
            return RowIdentity(None, row_id)


class RatedTasks:
    """The tasks of the chosen sources with their figures, and which of them found a row."""

    def __init__(self, rating: Rating, sources: Sequence[AttemptSource], prefixes: Sequence[str]) -> None:
        rated = [rating.sources[source].tasks for source in sources]
        self._tallies = {key: tally for tasks in rated for key, tally in tasks.items()}
        self._numbers = {key: number for number, key in enumerate(self._tallies)}
        carried = Counter(tally.task_id for tally in self._tallies.values())
        self._by_id = {tally.task_id: key for key, tally in self._tallies.items() if carried[tally.task_id] == 1}
        self._used: Counter[str] = Counter()
        names, columns = list[str](), list[pa.Array]()
        for prefix, tasks in zip(prefixes, rated, strict=True):
            tallies = [tasks.get(key) for key in self._tallies]
            for name, is_count in COUNTS.items():
                values = [getattr(tally, name, None) for tally in tallies]
                names.append(prefix + name)
                columns.append(pa.array(values, pa.int64() if is_count else pa.float64()))
            for k in (k for k in default_ks(rating) if k <= LARGEST_K):
                names.append(f"{prefix}pass_at_{k}")
                shares = [None if tally is None else pass_at_k(tally.attempts, tally.passes, k) for tally in tallies]
                columns.append(pa.array(shares, pa.float64()))
        self.figures = pa.Table.from_arrays(columns, names)
        """A row for each task, null in the columns of a source without it."""
        self.by_key = self.by_id = 0
        self.rows_left = UnmatchedItems()

    def find(self, identity: RowIdentity, number: int) -> int | None:
        """The row of `figures` that is that of a dataset's row, whose position is `number`, from 1."""
        key = self._find(identity)
        if key is None:
            self.rows_left.add(short(identity.id or identity.key or f"row {number}"))
            return None
        self._used[key] += 1
        return self._numbers[key]

    @property
    def shared(self) -> int:
        """Tasks that more than one row matched."""
        return sum(count > 1 for count in self._used.values())

    def left(self) -> UnmatchedItems:
        left = UnmatchedItems()
        for key, tally in self._tallies.items():
            if key not in self._used:
                left.add(task_label(key, tally.task_id or tally.task_name or tally.task_prompt))
        return left

    def _find(self, identity: RowIdentity) -> str | None:
        if identity.key in self._tallies:
            self.by_key += 1
            return identity.key
        if identity.id is not None and (key := self._by_id.get(identity.id)) is not None:
            self.by_id += 1
            return key
        return None


def _choose_sources(rating: Rating, options: JoinOptions) -> list[AttemptSource]:
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


def _column_prefixes(sources: Sequence[AttemptSource], options: JoinOptions) -> list[str]:
    """The column prefix of each source: none, or with `per_model` its model (and env, if they differ)."""
    if not options.per_model:
        return [""] * len(sources)
    several = len({source.env for source in sources}) > 1
    names = [f"{source.env}_{source.model}" if several else source.model for source in sources]
    # Dots would read as nested columns.
    return [re.sub(r"[^0-9A-Za-z-]+", "_", name).strip("_") + "_" for name in names]


def _with_features(metadata: dict[bytes, bytes], added: pa.Schema) -> dict[bytes, bytes]:
    """`datasets` reads a file by the feature list in its metadata: a list without the new columns is wrong."""
    rest = {key: value for key, value in metadata.items() if key != b"huggingface"}
    try:
        parsed = json.loads(metadata[b"huggingface"])
        for own in added:
            dtype = "int64" if own.type == pa.int64() else "float64"
            parsed["info"]["features"][own.name] = {"dtype": dtype, "_type": "Value"}
    except (ValueError, TypeError, KeyError):
        return rest
    return rest | {b"huggingface": json.dumps(parsed).encode()}


def _provenance(name: str, rating: Rating, sources: Sequence[AttemptSource], prefixes: Sequence[str]) -> str:
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
    dataset: Dataset, writer: pq.ParquetWriter, tasks: RatedTasks, config: OpenCodeTasksetConfig, options: JoinOptions,
    figures: JoinFigures,
) -> RowKeys:  # fmt: skip
    keys, written_keys = (RowKeys(config, options.id_key) for _ in range(2))
    own = [name for name in dataset.schema.names if name not in figures.columns]
    with Progress("joining", dataset.rows, "rows") as progress:
        for rows, batch in dataset.chunks():
            identities = [keys.find(row) for row in rows]
            numbers = [tasks.find(identity, figures.rows + i) for i, identity in enumerate(identities, start=1)]
            found = tasks.figures.take(pa.array(numbers, pa.int64()))
            arrays = [*(batch.column(name) for name in own), *found.columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=writer.schema))
            if dataset.rewrites:
                for row, identity, values in zip(rows, identities, batch.to_pylist(), strict=True):
                    if written_keys.find(Row(row.origin, row.number, values)).key != identity.key:
                        figures.changed_identity.add(row.place)
            figures.rows += len(rows)
            figures.rated_rows += found.column(0).length() - found.column(0).null_count
            progress.update(len(rows))
    return keys


def _finish(figures: JoinFigures, tasks: RatedTasks, keys: RowKeys) -> None:
    refusal = f" ({keys.refused:,} rows are not tasks of OpenCodeTaskset: {keys.first_refusal})" if keys.refused else ""
    figures.matched_by_key, figures.matched_by_id = tasks.by_key, tasks.by_id
    figures.unmatched_rows, figures.unmatched_tasks = tasks.rows_left, tasks.left()
    figures.tasks, figures.tasks_matched_twice = tasks.figures.num_rows, tasks.shared
    if not (tasks.by_key or tasks.by_id):
        raise NothingUsableError(
            f"no row matches a task: rows are called {', '.join(figures.unmatched_rows.first)}; tasks are called "
            f"{', '.join(figures.unmatched_tasks.first)}{refusal}; name the dataset that was rated, or an id column "
            "with --id-key"
        )
    if keys.refused:
        figures.notes.append(f"matched by id only{refusal}")
