"""The one table of difficulty figures, and the answer of `rate` as plain data.

A figure is a field of `Figures`, worked out for one task by the attribute of `Tally` with the same name. The JSON, the
columns that `join` writes and the tables of text follow from the fields; over a source, counts are summed and other
figures are means of the tasks' values, every task weighing the same.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel

from opencode_runs.difficulty.rate import Rating, SourceRating
from opencode_runs.difficulty.tally import Tally
from opencode_runs.traces.reading import RunReport


@dataclass(frozen=True)
class Shown:
    """How a figure stands in a table of text."""

    header: str
    digits: int = 0


class Figures(BaseModel):
    """What is known of the tries of a task, or of all tasks of a source."""

    avg_reward: Annotated[float | None, Shown("reward", 2)]
    reward_stderr: float | None
    """Of a source, over its tasks (whose means vary by difficulty, too)."""
    attempts: Annotated[int, Shown("n")]
    passes: int
    pass_rate: Annotated[float | None, Shown("pass", 2)]
    mean_turns: Annotated[float | None, Shown("turns", 1)]
    mean_tokens: Annotated[float | None, Shown("tokens")]
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
    return TaskFigures(**found, **labels, pass_at={k: tally.pass_at(k) for k in ks})


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
