"""A rated dataset on disk, which `join` wrote: its three bands, how `show` reports them, and `split` by them.

Reading is by column and by batch, so that a figure over a large file never loads its questions.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from opencode_runs.console_command import check_output, drawing, number, replacing, table
from opencode_runs.difficulty.rate import Band, Thresholds, credible_interval
from opencode_runs.errors import BadInputError, NothingUsableError
from opencode_runs.progress import Progress

REWARD_COLUMN = "avg_reward"
METADATA_KEY = b"opencode_difficulty"
BATCH_ROWS = 8192
_NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_null)
"""What a difficulty column may hold; a column of nulls is one in which nothing was rated."""


class ParquetInput:
    """An opened Parquet file with rows, called `called` in messages."""

    def __init__(self, path: Path, called: str) -> None:
        self.path, self._called = path, called
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f"{called} is not a Parquet file that can be read: {one_line(error)}") from None
        self.schema: pa.Schema = self._file.schema_arrow
        """With the file's metadata."""
        self.rows = int(self._file.metadata.num_rows)
        if not self.rows:
            raise NothingUsableError(f"{called} has no rows")

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of the file, of all columns or the named ones.

        Raises:
            BadInputError: the file is damaged.
        """
        try:
            yield from self._file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise BadInputError(f"{self._called} is damaged: {one_line(error)}") from None


class RatedRow(NamedTuple):
    label: str
    reward: float | None
    """None for a row that was never rated (null, NaN or infinite)."""
    attempts: int | None
    passes: int | None


class RatedFile(ParquetInput):
    """A rated dataset with its difficulty column.

    Raises:
        BadInputError: no such file, not Parquet, no such column (the candidates are listed), or no numbers in it.
        NothingUsableError: the file has no row.
    """

    def __init__(self, path: Path, column: str = REWARD_COLUMN) -> None:
        if not path.is_file():
            raise BadInputError(f'rated dataset "{path}" ' + ("is not a file" if path.exists() else "does not exist"))
        super().__init__(path, f'"{path}"')
        names = self.schema.names
        if column not in names:
            rated = [name for name in names if name.endswith(REWARD_COLUMN)]
            hint = f"rated columns: {', '.join(rated)}" if rated else f"columns: {', '.join(names)}"
            raise BadInputError(f'"{path}" has no column "{column}" ({hint}): name one with --column')
        kind = self.schema.field(column).type
        if not any(test(kind) for test in _NUMBERS):
            raise BadInputError(f'column "{column}" of "{path}" holds {kind}, not numbers')
        self.column = column
        self.prefix = column.removesuffix(REWARD_COLUMN) if column.endswith(REWARD_COLUMN) else ""

    @property
    def about(self) -> dict[str, object]:
        try:
            parsed = json.loads((self.schema.metadata or {}).get(METADATA_KEY, b"{}"))
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def has(self, figure: str) -> bool:
        """Whether the file has `figure` (a column without its prefix)."""
        return self.prefix + figure in self.schema.names

    def read(self) -> Iterator[RatedRow]:
        """The rows, without their content."""
        label = next((name for name in ("id", "name", "question") if name in self.schema.names), None)
        counts = (self.prefix + name if self.has(name) else None for name in ("attempts", "passes"))
        wanted = [label, self.column, *counts]
        number = 0
        for batch in self.batches(list(dict.fromkeys(filter(None, wanted)))):
            nothing = [None] * batch.num_rows
            for cells in zip(*(batch.column(name).to_pylist() if name else nothing for name in wanted), strict=True):
                yield RatedRow(_label(cells[0], number), finite(cells[1]), cells[2], cells[3])
                number += 1

    def reach(self) -> tuple[float, float]:
        """The least and greatest value of the difficulty column, widened to hold 0 and 1."""
        low, high = 0.0, 1.0
        for batch in self.batches([self.column]):
            values = [v for v in map(finite, batch.column(self.column).to_pylist()) if v is not None]
            low, high = min([low, *values]), max([high, *values])
        return low, high


def one_line(error: BaseException) -> str:
    """The first line of an error of pyarrow's, which like to be long."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def finite(value: float | None) -> float | None:
    """A difficulty as a number, None if there is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def _label(value: object, number: int) -> str:
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return " ".join(str(value).split())[:80] if value not in (None, "") else f"row {number}"


BAR_WIDTH = 50
BINS = 10


class BandFigures(BaseModel):
    condition: str
    rows: int = 0
    first: list[str] = []


class ShowFigures(BaseModel):
    path: str
    column: str
    rows: int
    rated: int = 0
    mean: float | None = None
    edges: list[float]
    """Ends of the histogram's bins; the last bin has both its ends."""
    counts: list[int]
    bands: dict[Band, BandFigures]
    about: dict[str, object] = Field(default_factory=dict)


def show(rated: RatedFile, thresholds: Thresholds, *, first: int) -> ShowFigures:
    """Work out the histogram and bands of a rated file; `first` rows of each band are named."""
    low, high = rated.reach()
    found = ShowFigures(
        path=str(rated.path),
        column=rated.column,
        rows=rated.rows,
        edges=[low + (high - low) * i / BINS for i in range(BINS + 1)],
        counts=[0] * BINS,
        bands={band: BandFigures(condition=thresholds.describe(band)) for band in Band},
        about=rated.about,
    )
    total = 0.0
    for row in rated.read():
        band = found.bands[thresholds.band(row.reward)]
        band.rows += 1
        if len(band.first) < first:
            tries = f"  ({row.passes} of {row.attempts} passed)" if row.attempts else ""
            band.first.append(row.label if row.reward is None else f"{row.reward:.3f}  {row.label}{tries}")
        if row.reward is not None:
            found.rated += 1
            total += row.reward
            # The slack puts 0.3, which is not three times 0.1 in floats, where it belongs.
            found.counts[min(int((row.reward - low) / (high - low) * BINS + 1e-9), BINS - 1)] += 1
    found.mean = total / found.rated if found.rated else None
    return found


def show_text(figures: ShowFigures) -> str:
    most = max(figures.counts, default=0) or 1
    mean = number(figures.mean, ".3f")
    lines = [f"{figures.column}: {figures.rated:,} of {figures.rows:,} rows rated, mean {mean}", ""]
    for index, count in enumerate(figures.counts):
        bar = "█" * max(round(count / most * BAR_WIDTH), 1 if count else 0)
        closing = "]" if index == len(figures.counts) - 1 else ")"
        low, high = figures.edges[index], figures.edges[index + 1]
        lines.append(f"[{low:5.2f}, {high:5.2f}{closing}  {bar:<{BAR_WIDTH}} {count:,}")
    for band, content in figures.bands.items():
        lines += ["", f"{band} ({content.condition}): {content.rows:,} rows"]
        lines += [f"    {label}" for label in content.first]
        if content.first and content.rows > len(content.first):
            lines.append(f"    … {content.rows - len(content.first):,} more")
    return "\n".join(lines)


def write_png(figures: ShowFigures, thresholds: Thresholds, path: Path) -> None:
    """Draw the histogram of `figures` as a PNG, with the medium band shaded.

    Raises:
        BadInputError: matplotlib is not installed, or the file cannot be written.
    """
    with drawing(path) as axes:
        axes.axvspan(thresholds.low, thresholds.high, alpha=0.15, label="medium band")
        axes.stairs(figures.counts, figures.edges, fill=True, edgecolor="white", label="tasks")
        axes.set_xlabel(figures.column)
        axes.set_ylabel("tasks")
        axes.set_title(f"{figures.rated:,} of {figures.rows:,} rows rated")
        axes.legend()


class SplitFile(BaseModel):
    path: Path
    condition: str
    rows: int = 0


class SplitFigures(BaseModel):
    column: str
    files: dict[Band, SplitFile]


def split(rated: RatedFile, thresholds: Thresholds, folder: Path, *, force: bool) -> SplitFigures:
    """Write `hard`, `medium`, `easy` and `unrated.parquet` into `folder`, all four or none.

    A file may have no rows: a missing one could be taken for an old one. Rows keep their order and columns.

    Raises:
        BadInputError: an output exists and `force` is not set, or the input is damaged.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInputError(f'output folder "{folder}" cannot be made: {error.strerror}') from None
    files = {band: SplitFile(path=folder / f"{band}.parquet", condition=thresholds.describe(band)) for band in Band}
    for file in files.values():
        check_output(file.path, force=force)
        if file.path.exists() and file.path.samefile(rated.path):
            raise BadInputError(f'output "{file.path}" is the input: write to another folder')
    with replacing(file.path for file in files.values()) as temporaries, ExitStack() as stack:
        writers = [stack.enter_context(pq.ParquetWriter(temporary, rated.schema)) for temporary in temporaries]
        progress = stack.enter_context(Progress("splitting", rated.rows, "rows"))
        for batch in rated.batches():
            bands = [thresholds.band(finite(reward)) for reward in batch.column(rated.column).to_pylist()]
            for (band, file), writer in zip(files.items(), writers, strict=True):
                part = batch.filter(pa.array([found is band for found in bands], pa.bool_()))
                writer.write_batch(part)
                file.rows += part.num_rows
            progress.update(batch.num_rows)
    return SplitFigures(column=rated.column, files=files)


MAX_LINES = 40
_CREDIBLE = 0.9
"""Of the interval of P(mixed)."""


class AlikeTasks(BaseModel):
    """All tasks with the same attempts, passes and mean reward: to the recommendation they are the same."""

    passes: int
    attempts: int
    avg_reward: float
    tasks: int
    mixed: float
    low: float
    high: float
    told: bool = True
    """Whether the attempts are enough to tell tasks that teach from others."""
    useful: bool = False
    in_band: bool = False


class RecommendFigures(BaseModel):
    path: str
    column: str
    group_size: int
    probability: float
    rows: int
    unrated: int
    untold: int
    useful: int
    min_avg_reward: float
    max_avg_reward: float
    kept: int
    """Tasks that a filter by the band keeps: the useful ones, and others between them."""
    mixed_per_epoch: float
    """Groups with mixed outcomes to expect when every kept task gets one group."""
    outcomes: list[AlikeTasks]

    @property
    def toml(self) -> str:
        return (
            f'difficulty_key = "{self.column}"\n'
            f"min_avg_reward = {self.min_avg_reward!r}\nmax_avg_reward = {self.max_avg_reward!r}"
        )

    @property
    def flags(self) -> str:
        return (
            f"--env.taskset.difficulty-key {self.column} --env.taskset.min-avg-reward {self.min_avg_reward!r} "
            f"--env.taskset.max-avg-reward {self.max_avg_reward!r}"
        )


def recommend(rated: RatedFile, *, group: int, probability: float) -> RecommendFigures:
    """Propose the band of `rated` that keeps every task with P(mixed in a group of `group`) >= `probability`.

    Raises:
        BadInputError: the file does not say how many attempts passed.
        NothingUsableError: no row is rated, the attempts are too few to tell, or no task reaches the probability.
    """
    alike = _alike(rated, group)
    for found in alike:
        # Else each outcome would have reached it, also that of a task that never passed.
        found.told = found.attempts > 1 and mixed_probability(0, found.attempts, group)[0] < probability
    told = [found for found in alike if found.told]
    if not told:
        most = max(found.attempts for found in alike)
        _, low, high = mixed_probability(0, most, group)
        raise NothingUsableError(
            f"no task has more attempts than {most}, after which the interval of P(mixed) in a group of {group} is too "
            f"wide to tell which tasks teach ({low:.2f} to {high:.2f} where none passed): play each task several "
            "times, as with `vf-eval -r 8`, and rate and join those, or raise -p"
        )
    for found in told:
        found.useful = found.mixed >= probability
    useful = [found for found in told if found.useful]
    if not useful:
        best = max(told, key=lambda found: found.mixed)
        raise NothingUsableError(
            f"no task reaches P(mixed) {probability:g} in a group of {group}; the best has {best.mixed:.2f} "
            f"({best.passes} of {best.attempts} passed): lower -p, or raise -G"
        )
    low, high = useful[0].avg_reward, useful[-1].avg_reward
    for found in alike:
        found.in_band = low <= found.avg_reward <= high
    kept = [found for found in alike if found.in_band]
    return RecommendFigures(
        path=str(rated.path),
        column=rated.column,
        group_size=group,
        probability=probability,
        rows=rated.rows,
        unrated=rated.rows - sum(found.tasks for found in alike),
        untold=sum(found.tasks for found in alike if not found.told),
        useful=sum(found.tasks for found in useful),
        min_avg_reward=low,
        max_avg_reward=high,
        kept=sum(found.tasks for found in kept),
        mixed_per_epoch=sum(found.tasks * found.mixed for found in kept),
        outcomes=alike,
    )


def recommend_text(figures: RecommendFigures) -> str:
    yes = {True: "yes", False: "no"}
    untold = f", {figures.untold:,} with too few attempts to tell" if figures.untold else ""
    rows = [
        [f"{o.passes}/{o.attempts}", f"{o.avg_reward:.3f}", f"{o.tasks:,}", f"{o.mixed:.2f}",
         f"{o.low:.2f} to {o.high:.2f}", yes[o.useful] if o.told else "?", yes[o.in_band]]
        for o in figures.outcomes[:MAX_LINES]
    ]  # fmt: skip
    header = ["passed", "reward", "tasks", "P(mixed)", f"{_CREDIBLE:.0%} interval", "teaches", "in band"]
    body = table(header, rows)
    if len(figures.outcomes) > MAX_LINES:
        body += f"\n… {len(figures.outcomes) - MAX_LINES:,} more outcomes (all with --json)"
    return f"""{body}

group of {figures.group_size}, P(mixed) ≥ {figures.probability:g}: \
{figures.useful:,} of {figures.rows:,} tasks teach ({figures.unrated:,} unrated{untold})
band {figures.min_avg_reward:g} to {figures.max_avg_reward:g} keeps {figures.kept:,} tasks; \
{figures.mixed_per_epoch / figures.kept:.0%} of their groups should have mixed outcomes

vf-eval: {figures.flags}

TOML, in the taskset's table (prime-rl: [orchestrator.train.source.env.taskset]):
{figures.toml}"""


def _alike(rated: RatedFile, group: int) -> list[AlikeTasks]:
    if not (rated.has("attempts") and rated.has("passes")):
        missing = f'"{rated.prefix}attempts" and "{rated.prefix}passes"'
        raise BadInputError(f'"{rated.path}" lacks the columns {missing}, which `join` writes')
    rows = ((row.reward, row.attempts, row.passes or 0) for row in rated.read() if row.reward is not None)
    tally = Counter((reward, attempts, passes) for reward, attempts, passes in rows if attempts)
    if not tally:
        raise NothingUsableError(f'"{rated.path}" has no rated row')
    alike = []
    for (reward, attempts, passes), tasks in sorted(tally.items()):
        mixed, low, high = mixed_probability(passes, attempts, group)
        alike.append(
            AlikeTasks(
                passes=passes, attempts=attempts, avg_reward=reward, tasks=tasks, mixed=mixed, low=low, high=high
            )
        )
    return alike


@lru_cache(maxsize=65536)
def mixed_probability(passes: int, attempts: int, group: int) -> tuple[float, float, float]:
    """P(mixed) of a group of `group` attempts after `passes` of `attempts`: its mean, and the ends of its interval."""

    def power(a: float, b: float) -> float:
        """E[q^group] of q ~ Beta(a, b)."""
        return math.prod((a + i) / (a + b + i) for i in range(group))

    a, b = 0.5 + passes, 0.5 + attempts - passes
    low, high = credible_interval(
        passes, attempts, _CREDIBLE, lambda rates: np.maximum(1 - rates**group - (1 - rates) ** group, 0)
    )
    return max(0.0, 1.0 - power(a, b) - power(b, a)), low, high
