"""The answer of `rate` as plain data: what `--json` prints and what the text tables show."""

import math
from pathlib import Path

from pydantic import BaseModel

from opencode_env.difficulty.rate import Rating, RunReport, SourceRating
from opencode_env.difficulty.tally import Tally


class TaskFigures(BaseModel):
    """One task as one source met it."""

    key: str
    id: str | None
    name: str | None
    prompt: str | None
    """The beginning of the prompt."""
    attempts: int
    avg_reward: float | None
    reward_stderr: float | None
    passes: int
    pass_rate: float | None
    pass_at: dict[int, float | None]
    mean_turns: float | None
    mean_tokens: float | None
    errors: int
    unscored: int
    timed_out: int


class PassAt(BaseModel):
    """pass@k over tasks."""

    value: float
    tasks: int
    """How many tasks had at least k attempts."""


class SourceFigures(BaseModel):
    """One env and model over all its tasks: means of the tasks' means, every task weighing the same."""

    env: str
    model: str
    tasks: int
    tasks_rated: int
    attempts: int
    avg_reward: float | None
    reward_stderr: float | None
    """Standard error over tasks (the tasks' means vary by difficulty, too)."""
    pass_rate: float | None
    pass_at: dict[int, PassAt]
    mean_turns: float | None
    mean_tokens: float | None
    errors: int
    unscored: int
    timed_out: int
    causes: dict[str, int]
    sampling: list[str]
    verifiers: list[str]
    mixtures: list[str]
    """Warnings about differences between the tries that are pooled here."""
    rows: list[TaskFigures]


class RunFigures(BaseModel):
    """How reading one trace file went."""

    path: Path
    episodes: int
    duplicates: int
    unreadable: int
    truncated_end: bool
    complaints: list[str]


class RateFigures(BaseModel):
    """The whole answer."""

    threshold: float
    runs: list[RunFigures]
    sources: list[SourceFigures]


def default_ks(rating: Rating) -> list[int]:
    """1, 2, 4, 8, … up to the most attempts any task has."""
    most = max((t.attempts for s in rating.sources.values() for t in s.tasks.values()), default=0)
    return [2**power for power in range(most.bit_length())]


def figures(rating: Rating, ks: list[int] | None = None) -> RateFigures:
    """Work out the figures of `rating`, with pass@k for `ks`, tasks ordered from hardest to easiest."""
    ks = default_ks(rating) if ks is None else ks
    sources = [_source(source.env, source.model, rated, ks) for source, rated in sorted(rating.sources.items())]
    return RateFigures(threshold=rating.threshold, runs=[run_figures(run) for run in rating.runs], sources=sources)


def mean(values: list[float]) -> float | None:
    """The arithmetic mean, None of nothing."""
    return math.fsum(values) / len(values) if values else None


def _stderr(values: list[float]) -> float | None:
    middle = mean(values)
    if middle is None or len(values) < 2:
        return None
    return math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1) / len(values))


def run_figures(run: RunReport) -> RunFigures:
    """The report of one trace file as plain data."""
    return RunFigures(
        path=run.path,
        episodes=run.episodes,
        duplicates=run.duplicates,
        unreadable=run.unreadable,
        truncated_end=run.truncated_end,
        complaints=run.complaints,
    )


def _task(key: str, tally: Tally, ks: list[int]) -> TaskFigures:
    return TaskFigures(
        key=key,
        id=tally.task_id,
        name=tally.task_name,
        prompt=tally.task_prompt,
        attempts=tally.attempts,
        avg_reward=tally.avg_reward,
        reward_stderr=tally.reward_stderr,
        passes=tally.passes,
        pass_rate=tally.pass_rate,
        pass_at={k: tally.pass_at(k) for k in ks},
        mean_turns=tally.mean_turns,
        mean_tokens=tally.mean_tokens,
        errors=tally.errors,
        unscored=tally.unscored,
        timed_out=tally.timed_out,
    )


def _source(env: str, model: str, rated: SourceRating, ks: list[int]) -> SourceFigures:
    rows = [_task(key, tally, ks) for key, tally in rated.tasks.items()]
    rows.sort(key=lambda row: (row.avg_reward is None, row.avg_reward or 0.0, row.id or "", row.key))
    rewards = [row.avg_reward for row in rows if row.avg_reward is not None]
    pass_at = {}
    for k in ks:
        values = [value for row in rows if (value := row.pass_at[k]) is not None]
        if (average := mean(values)) is not None:
            pass_at[k] = PassAt(value=average, tasks=len(values))
    return SourceFigures(
        env=env,
        model=model,
        tasks=len(rows),
        tasks_rated=len(rewards),
        attempts=sum(row.attempts for row in rows),
        avg_reward=mean(rewards),
        reward_stderr=_stderr(rewards),
        pass_rate=mean([row.pass_rate for row in rows if row.pass_rate is not None]),
        pass_at=pass_at,
        mean_turns=mean([row.mean_turns for row in rows if row.mean_turns is not None]),
        mean_tokens=mean([row.mean_tokens for row in rows if row.mean_tokens is not None]),
        errors=sum(row.errors for row in rows),
        unscored=sum(row.unscored for row in rows),
        timed_out=sum(row.timed_out for row in rows),
        causes=dict(rated.causes.most_common()),
        sampling=list(rated.sampling),
        verifiers=list(rated.versions),
        mixtures=rated.mixtures(model),
        rows=rows,
    )
