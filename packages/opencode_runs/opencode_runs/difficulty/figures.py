"""The one table of difficulty figures, and the answer of `rate` as plain data and as text.

A figure is a field of `Figures`, worked out for one task by the attribute of `Tally` with the same name. The JSON, the
columns that `join` writes and the tables of text follow from the fields; over a source, counts are summed and other
figures are means of the tasks' values, every task weighing the same.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel

from opencode_runs.command import BadInputError, number, table, task_label
from opencode_runs.difficulty.rate import Rating, SourceRating, Tally, pass_at_k
from opencode_runs.traces.reading import RunReport


class Band(StrEnum):
    """Where a row's difficulty lies; the medium band has both its ends, as the taskset's filter does."""

    HARD = "hard"
    """Below the medium band."""
    MEDIUM = "medium"
    EASY = "easy"
    """Above the medium band."""
    UNRATED = "unrated"
    """No difficulty is known (null or NaN)."""


@dataclass(frozen=True)
class Thresholds:
    """The ends of the medium band, both part of it."""

    low: float = 0.2
    high: float = 0.8

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise BadInputError(f"--hard-below {self.low:g} is above --easy-above {self.high:g}: swap them")

    def band(self, reward: float | None) -> Band:
        if reward is None:
            return Band.UNRATED
        if reward < self.low:
            return Band.HARD
        return Band.EASY if reward > self.high else Band.MEDIUM

    def describe(self, band: Band) -> str:
        conditions = (f"< {self.low:g}", f"{self.low:g} to {self.high:g}", f"> {self.high:g}", "no value")
        return dict(zip(Band, conditions, strict=True))[band]


@dataclass(frozen=True)
class Shown:
    """How a figure stands in a table of text."""

    header: str
    digits: int = 0


class Figures(BaseModel):
    """What is known of the tries of a task, or of all tasks of a source."""

    avg_reward: Annotated[float | None, Shown("reward", 2)]
    reward_stderr: float | None
    """Standard error; of a source, over its tasks (whose means vary by difficulty, too)."""
    attempts: Annotated[int, Shown("n")]
    passes: int
    pass_rate: Annotated[float | None, Shown("pass", 2)]
    mean_turns: Annotated[float | None, Shown("turns", 1)]
    mean_tokens: Annotated[float | None, Shown("length")]
    """Tokens of a trace, each once."""
    timed_out: Annotated[int, Shown("timeouts")]
    errors: Annotated[int, Shown("errors")]
    unscored: Annotated[int, Shown("unscored")]


COUNTS = {name: field.annotation is int for name, field in Figures.model_fields.items()}
"""All figures by name: whether they are counts."""
_FOUND = {name: field.metadata[0] for name, field in Figures.model_fields.items() if field.metadata}
SHOWN: dict[str, Shown] = {"attempts": _FOUND["attempts"]} | _FOUND
"""The figures in tables of text, which begin with the attempts."""


class TaskFigures(Figures):
    key: str
    id: str | None
    name: str | None
    prompt: str | None
    """The beginning of the prompt."""
    pass_at: dict[int, float | None]


class PassAt(BaseModel):
    value: float
    tasks: int
    """How many tasks had at least k attempts."""


class SourceFigures(Figures):
    """One env and model over all its tasks."""

    env: str
    model: str
    tasks: int
    tasks_rated: int
    pass_at: dict[int, PassAt]
    causes: dict[str, int]
    sampling: list[str]
    verifiers: list[str]
    mixtures: list[str]
    """Warnings about differences between the tries that are pooled here."""
    rows: list[TaskFigures]


class RateFigures(BaseModel):
    threshold: float
    runs: list[RunReport]
    sources: list[SourceFigures]


def default_ks(rating: Rating) -> list[int]:
    """1, 2, 4, 8, … up to the most attempts any task has."""
    most = max((t.attempts for s in rating.sources.values() for t in s.tasks.values()), default=0)
    return [2**power for power in range(most.bit_length())]


def figures(rating: Rating, ks: list[int] | None = None) -> RateFigures:
    """Work out the figures of `rating`, with pass@k for `ks`, tasks ordered from hardest to easiest."""
    ks = default_ks(rating) if ks is None else ks
    sources = [_source(source.env, source.model, rated, ks) for source, rated in sorted(rating.sources.items())]
    return RateFigures(threshold=rating.threshold, runs=rating.runs, sources=sources)


def _task(key: str, tally: Tally, ks: list[int]) -> TaskFigures:
    found: dict[str, Any] = {name: getattr(tally, name) for name in COUNTS}
    labels = {"key": key, "id": tally.task_id, "name": tally.task_name, "prompt": tally.task_prompt}
    return TaskFigures(**found, **labels, pass_at={k: pass_at_k(tally.attempts, tally.passes, k) for k in ks})


def _source(env: str, model: str, rated: SourceRating, ks: list[int]) -> SourceFigures:
    rows = [_task(key, tally, ks) for key, tally in rated.tasks.items()]
    rows.sort(key=lambda row: (row.avg_reward is None, row.avg_reward or 0.0, row.id or "", row.key))
    columns = {name: [v for row in rows if (v := getattr(row, name)) is not None] for name in COUNTS}
    found: dict[str, Any] = {}
    for name, values in columns.items():
        found[name] = sum(values) if COUNTS[name] else statistics.fmean(values) if values else None
    rewards = columns["avg_reward"]
    found["reward_stderr"] = statistics.stdev(rewards) / math.sqrt(len(rewards)) if len(rewards) > 1 else None
    reached = {k: [value for row in rows if (value := row.pass_at[k]) is not None] for k in ks}
    return SourceFigures(
        **found,
        env=env,
        model=model,
        tasks=len(rows),
        tasks_rated=len(rewards),
        pass_at={k: PassAt(value=statistics.fmean(v), tasks=len(v)) for k, v in reached.items() if v},
        causes=dict(rated.causes.most_common()),
        sampling=list(rated.sampling),
        verifiers=list(rated.versions),
        mixtures=rated.mixtures(model),
        rows=rows,
    )


def rate_text(answer: RateFigures, limit: int | None) -> str:
    """The answer of `rate` as text: a line per source, then the tasks, hardest first, at most `limit` of them."""
    parts = [_source_table(answer)]
    if "*" in parts[0]:
        parts.append("* of the tasks with at least k attempts")
    for source in answer.sources:
        if source.causes:
            named = ", ".join(f"{cause} {count:,}" for cause, count in source.causes.items())
            parts.append(f"{source.model}: not counted as attempts: {named}")
    single = len(answer.sources) == 1
    parts += ["", _task_table(answer.sources[0], limit) if single else _side_by_side(answer.sources, limit)]
    total = len({row.key for source in answer.sources for row in source.rows})
    if limit is not None and total > limit:
        parts.append(f"… {total - limit:,} more tasks (all with --rows 0 or --json)")
    return "\n".join(parts)


def _header(ks: Sequence[int]) -> list[str]:
    """The headers of `_cells`."""
    headers = {name: [shown.header] for name, shown in SHOWN.items()}
    headers["pass_rate"] += [f"pass@{k}" for k in ks]
    return [header for found in headers.values() for header in found]


def _cells(row: TaskFigures | SourceFigures, ks: Sequence[int]) -> list[str]:
    """All figures, pass@k after the pass rate."""
    cells = {name: [number(getattr(row, name), f",.{shown.digits}f")] for name, shown in SHOWN.items()}
    cells["avg_reward"] = [_reward(row)]
    for k in ks:
        found = row.pass_at.get(k)
        value = found.value if isinstance(found, PassAt) else found
        partly = isinstance(row, SourceFigures) and isinstance(found, PassAt) and found.tasks < row.tasks_rated
        cells["pass_rate"].append(number(value, ".2f") + "*" * partly)
    return [cell for found in cells.values() for cell in found]


def _reward(row: TaskFigures | SourceFigures) -> str:
    return number(row.avg_reward, ",.2f") + (f" ±{row.reward_stderr:.2f}" if row.reward_stderr is not None else "")


def _source_table(answer: RateFigures) -> str:
    ks = sorted({k for source in answer.sources for k in source.pass_at})
    names = {"n": "attempts", "pass": f"pass≥{answer.threshold:g}"}
    header = ["model", "tasks", "rated", *(names.get(name, name) for name in _header(ks))]
    rows = [
        [_source_label(source, answer.sources), f"{source.tasks:,}", f"{source.tasks_rated:,}", *_cells(source, ks)]
        for source in answer.sources
    ]
    return table(header, rows)


def _task_table(source: SourceFigures, limit: int | None) -> str:
    ks = list(source.rows[0].pass_at) if source.rows else []
    return table(["task", *_header(ks)], [[_label(row), *_cells(row, ks)] for row in source.rows[:limit]])


def _side_by_side(sources: Sequence[SourceFigures], limit: int | None) -> str:
    """One column per source: mean reward, its standard error, attempts and errors."""
    by_key = [{row.key: row for row in source.rows} for source in sources]
    labels = {row.key: _label(row) for source in sources for row in source.rows}
    rows = [[label, *(_cell(rows.get(key)) for rows in by_key)] for key, label in list(labels.items())[:limit]]
    return table(["task", *(_source_label(source, sources) for source in sources)], rows)


def _label(row: TaskFigures) -> str:
    return task_label(row.key, row.id or row.name or row.prompt)


def _source_label(source: SourceFigures, sources: Sequence[SourceFigures]) -> str:
    """The model, with the env where several envs are compared."""
    several = len({other.env for other in sources}) > 1
    return f"{source.model} @ {source.env}" if several else source.model


def _cell(row: TaskFigures | None) -> str:
    if row is None:
        return "-"
    failed = row.errors + row.unscored
    return f"{_reward(row)} (n={row.attempts}{f', {failed} err' if failed else ''})"
