"""Rating: read the traces of runs line by line into one tally per env, model and task.

Memory holds the tallies, which stay small however many attempts a task has, and what reading takes. Sources of the
formulas: unbiased pass@k = 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, "Evaluating Large Language Models Trained on
Code"); mean and variance in one pass by Welford's recurrence.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from opencode_runs.console_command import number, table, task_label
from opencode_runs.errors import BadInputError
from opencode_runs.traces.reading import TraceFileReport, TraceReader, find_trace_files, lines_of
from opencode_runs.traces.record import EpisodeRecord, TraceRecord


@dataclass(frozen=True, slots=True)
class Attempt:
    """One scored try of the main seat."""

    reward: float
    turns: int
    tokens: int | None
    """New input plus generated tokens, as the provider reported them; None if the trace has no count."""
    timed_out: bool
    """The agent used up its time. Its partial work was scored: an attempt like any other."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that says nothing about the task; `cause` is an error type or a stop condition."""

    cause: str
    unscored: bool = False
    """The try ended well, but no reward was computed for it."""


Tries = list[tuple[TraceRecord | None, Attempt | Failure]]
"""What was tried, each with its trace if it has one."""


def tries(episode: EpisodeRecord, seat: str | None = None) -> Tries:
    """Every try of the episode with its trace; an episode that has none of the main seat is one error.

    The seat whose tries count is `seat`, else "agent", else the first trainable, else the first. A seat may have
    several traces in an episode (best-of-n): each is a try. A seat named "sub" is never chosen on its own account: its
    traces are calls the main agent made.
    """
    if seat is None:
        mains = [trace for trace in episode.traces if trace.seat != "sub"]
        names = [trace.seat for trace in mains]
        trainable = [trace.seat for trace in mains if trace.trainable]
        seat = "agent" if "agent" in names else next(iter(trainable or names), None)
    traces = [trace for trace in episode.traces if trace.seat == seat]
    if not traces:
        return [(None, Failure(episode.errors[-1].type if episode.errors else "no trace of the main seat"))]
    return [(trace, _classified(episode, trace)) for trace in traces]


def _classified(episode: EpisodeRecord, trace: TraceRecord) -> Attempt | Failure:
    """Whether the main seat's `trace` is an attempt, and with what reward."""
    if trace.wrong_types:
        return Failure("it cannot be read")
    stop = trace.stop_condition
    if not trace.ok:
        return Failure(trace.errors[-1].type if trace.errors else stop or "unknown error")
    # verifiers marks an expired setup, finalize or scoring deadline as ok, with a reward of 0 or none.
    if stop is not None and stop.endswith("_timeout") and not trace.timed_out:
        return Failure(stop)
    # Nothing was sampled: a program that never asked the model, or one whose first request did not fit into the window.
    # A first answer that was under way when the time was over is not a turn, and is the policy's.
    if not trace.timed_out and not trace.turns and not trace.num_total_tokens:
        return Failure("no model call" if stop in (None, "agent_completed") else f"no answer, stopped by {stop}")
    # A failed sub call is an error to the agent's tool call, and a failed sibling of the same seat is its own error.
    # The env's own hooks failing, or any other seat (one that judges, say), leaves the reward in doubt.
    bystanders = (trace.seat, "sub")
    if not episode.ok and (episode.errors or any(not t.ok for t in episode.traces if t.seat not in bystanders)):
        return Failure(episode.errors[-1].type if episode.errors else "another seat's error")
    if trace.dropped is not None:
        return Failure("dropped", unscored=True)
    if trace.reward is None:
        return Failure("no reward", unscored=True)
    return Attempt(trace.reward, trace.turns, trace.num_total_tokens, timed_out=trace.timed_out)


MAX_FACTS = 32
"""How many different sampling settings or versions are remembered per source."""
PASS_SLACK = 1e-9
"""A reward this far below the threshold still passes: weighted sums of floats are not exact."""


def pass_at_k(attempts: int, passes: int, k: int) -> float | None:
    """The unbiased probability that at least one of `k` attempts passes; None if fewer than `k` were made."""
    if k < 1 or attempts < k:
        return None
    return 1.0 - math.comb(attempts - passes, k) / math.comb(attempts, k)


GRID = 4000
"""Points of the grid; they lie evenly in the angle of q = sin²(angle), close together near 0 and 1."""


def credible_interval(
    passes: float, attempts: int, credible: float, figure: Callable[[np.ndarray], np.ndarray] = lambda rates: rates
) -> tuple[float, float]:
    """Return the bounds between which a figure of the pass rate lies with probability `credible`, after so many passes.

    The rate is Beta(1/2 + passes, 1/2 + fails) distributed (Jeffreys' prior), and the interval is the central one.
    """
    angles = (np.arange(GRID) + 0.5) / GRID * math.pi / 2
    # Substituting q = sin²(angle) multiplies the density by 2 sin cos, which tames its ends.
    logs = 2 * passes * np.log(np.sin(angles)) + 2 * (attempts - passes) * np.log(np.cos(angles))
    values = figure(np.sin(angles) ** 2)
    order = np.argsort(values)
    seen = np.cumsum(np.exp(logs - logs.max())[order])
    tail = (1 - credible) / 2
    low, high = values[order][np.searchsorted(seen, [tail * seen[-1], (1 - tail) * seen[-1]])]
    return float(low), float(high)


@dataclass(slots=True)
class Tally:
    task_id: str | None = None
    task_name: str | None = None
    task_prompt: str | None = None
    """The beginning of the prompt."""
    attempts: int = 0
    passes: int = 0
    errors: int = 0
    unscored: int = 0
    timed_out: int = 0
    mean_reward: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean reward (Welford's M2)."""
    turns: int = 0
    tokens: int = 0
    tokens_known: int = 0

    def add(self, outcome: Attempt | Failure, threshold: float) -> None:
        """Count one outcome; an attempt passes when its reward is at least `threshold`."""
        if isinstance(outcome, Failure):
            self.errors += not outcome.unscored
            self.unscored += outcome.unscored
            return
        self.attempts += 1
        self.passes += outcome.reward >= threshold - PASS_SLACK
        self.timed_out += outcome.timed_out
        delta = outcome.reward - self.mean_reward
        self.mean_reward += delta / self.attempts
        self.squares += delta * (outcome.reward - self.mean_reward)
        self.turns += outcome.turns
        if outcome.tokens is not None:
            self.tokens += outcome.tokens
            self.tokens_known += 1

    @property
    def avg_reward(self) -> float | None:
        return self.mean_reward if self.attempts else None

    @property
    def reward_stderr(self) -> float | None:
        """Standard error of the mean reward, None below two attempts."""
        if self.attempts < 2:
            return None
        return math.sqrt(max(0.0, self.squares) / (self.attempts - 1) / self.attempts)

    @property
    def pass_rate(self) -> float | None:
        return self.passes / self.attempts if self.attempts else None

    @property
    def mean_turns(self) -> float | None:
        return self.turns / self.attempts if self.attempts else None

    @property
    def mean_tokens(self) -> float | None:
        return self.tokens / self.tokens_known if self.tokens_known else None


class AttemptSource(NamedTuple):
    """Tells who made the attempts: figures of different sources are never mixed."""

    env: str
    model: str


class TryConditions(NamedTuple):
    model: str | None
    sampling: str
    verifiers: str
    scorers: Mapping[str, str]


@dataclass(slots=True)
class RatedEpisode:
    env: str
    task: str
    task_id: str | None
    task_name: str | None
    prompt: str | None
    tries: list[tuple[TryConditions | None, Attempt | Failure]]

    @classmethod
    def of(cls, episode: EpisodeRecord, tried: Tries) -> "RatedEpisode":
        assert episode.task is not None, "parse_line refuses an episode without one"
        made: list[tuple[TryConditions | None, Attempt | Failure]] = []
        for trace, found in tried:
            if trace is None:
                made.append((None, found))
                continue
            scorers = trace.scorers or {"": ""} if isinstance(found, Attempt) else {}
            made.append((TryConditions(trace.model, trace.sampling_text, trace.verifiers, scorers), found))
        return cls(episode.env, episode.task, episode.task_id, episode.task_name, episode.prompt, made)


@dataclass
class SourceRating:
    tasks: dict[str, Tally] = field(default_factory=dict)
    causes: Counter[str] = field(default_factory=Counter)
    """Why tries were not counted, by error type or stop condition."""
    sampling: dict[str, None] = field(default_factory=dict)
    versions: dict[str, None] = field(default_factory=dict)
    scorers: dict[str, dict[str, None]] = field(default_factory=dict)
    """The versions seen by the scorer's name; an empty name is of runs that name none."""

    def mixtures(self, model: str) -> list[str]:
        """Warnings about differences between the tries that are pooled here."""
        found: list[tuple[Iterable[str], str]] = [
            (self.sampling, "sampling settings"),
            (self.versions, "verifiers versions"),
            *((versions, f'versions of the scorer "{name}"') for name, versions in self.scorers.items()),
        ]
        if "" in self.scorers and len(self.scorers) > 1:
            found.append((["none", *filter(None, self.scorers)], "scorers with a version"))
        mixed = [(what, ", ".join(facts)) for facts, what in found if len([*facts]) > 1]
        return [f"{model}: {what} differ and are pooled: {facts}" for what, facts in mixed]

    def note(self, conditions: TryConditions) -> None:
        for facts, fact in ((self.sampling, conditions.sampling), (self.versions, conditions.verifiers)):
            if len(facts) < MAX_FACTS:
                facts[fact] = None
        for name, version in conditions.scorers.items():
            if name in self.scorers or len(self.scorers) < MAX_FACTS:
                versions = self.scorers.setdefault(name, {})
                if len(versions) < MAX_FACTS:
                    versions[version] = None


@dataclass
class Rating:
    """Holds what rating found: tallies by source and task key, and a report per trace file."""

    threshold: float
    sources: dict[AttemptSource, SourceRating] = field(default_factory=dict)
    runs: list[TraceFileReport] = field(default_factory=list)

    @property
    def attempts(self) -> int:
        return sum(tally.attempts for source in self.sources.values() for tally in source.tasks.values())

    def count(self, episode: RatedEpisode, run_model: str | None) -> None:
        """Count the tries of an episode; `run_model` is whom one without any trace belongs to."""
        for conditions, found in episode.tries:
            model = (conditions.model if conditions else None) or run_model or "unknown model"
            source = self.sources.setdefault(AttemptSource(episode.env, model), SourceRating())
            if conditions is not None:
                source.note(conditions)
            tally = source.tasks.get(episode.task)
            if tally is None:
                tally = source.tasks[episode.task] = Tally(episode.task_id, episode.task_name, episode.prompt)
            tally.add(found, self.threshold)
            if isinstance(found, Failure):
                source.causes[found.cause] += 1


def rate(paths: list[Path], *, threshold: float = 1.0, seat: str | None = None) -> Rating:
    """Rate the runs at `paths` (run directories or `traces.jsonl` files).

    An attempt passes when its reward is at least `threshold`. `seat` names the seat whose tries count; None
    chooses as `tries` says.

    Raises:
        BadInputError: a path is not a run, or a file cannot be read as traces of this schema.
    """
    reading = TraceReader(lines_of)
    rating = Rating(threshold, runs=reading.runs)
    for file, episode in reading.episodes(find_trace_files(paths, "eval")):
        rating.count(RatedEpisode.of(episode, tries(episode, seat)), file.settings.model)
    return rating


class Band(StrEnum):
    """Names where a row's difficulty lies; the medium band has both its ends, as the taskset's filter does."""

    HARD = "hard"
    MEDIUM = "medium"
    EASY = "easy"
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


class Figures(BaseModel):
    """Holds what is known of the tries of a task, or of all tasks of a source."""

    avg_reward: float | None
    reward_stderr: float | None
    """Standard error; of a source, over its tasks (whose means vary by difficulty, too)."""
    attempts: int
    passes: int
    pass_rate: float | None
    mean_turns: float | None
    mean_tokens: float | None
    """Tokens of a trace, each once."""
    timed_out: int
    errors: int
    unscored: int


COUNTS = {name: field.annotation is int for name, field in Figures.model_fields.items()}
"""All figures by name: whether they are counts."""
_SHOWN = {
    "attempts": ("n", 0),
    "avg_reward": ("reward", 2),
    "pass_rate": ("pass", 2),
    "mean_turns": ("turns", 1),
    "mean_tokens": ("length", 0),
    "timed_out": ("timeouts", 0),
    "errors": ("errors", 0),
    "unscored": ("unscored", 0),
}
"""The figures in tables of text, in order: their headers and decimal places."""


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
    runs: list[TraceFileReport]
    sources: list[SourceFigures]


def default_ks(rating: Rating) -> list[int]:
    """1, 2, 4, 8, … up to the most attempts any task has."""
    most = max((t.attempts for s in rating.sources.values() for t in s.tasks.values()), default=0)
    return [2**power for power in range(most.bit_length())]


def figures(rating: Rating) -> RateFigures:
    """Work out the figures of `rating`, with pass@k for `default_ks`, tasks ordered from hardest to easiest."""
    ks = default_ks(rating)
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
    reached = sorted({k for source in answer.sources for k in source.pass_at})
    names = {"n": "attempts", "pass": f"pass≥{answer.threshold:g}"}
    sources = [
        [
            _source_label(source, answer.sources),
            f"{source.tasks:,}",
            f"{source.tasks_rated:,}",
            *_cells(source, reached),
        ]
        for source in answer.sources
    ]
    parts = [table(["model", "tasks", "rated", *(names.get(name, name) for name in _header(reached))], sources)]
    if "*" in parts[0]:
        parts.append("* of the tasks with at least k attempts")
    for source in answer.sources:
        if source.causes:
            named = ", ".join(f"{cause} {count:,}" for cause, count in source.causes.items())
            parts.append(f"{source.model}: not counted as attempts: {named}")
    parts.append("")
    if len(answer.sources) == 1:
        rows = answer.sources[0].rows
        ks = list(rows[0].pass_at) if rows else []
        parts.append(table(["task", *_header(ks)], [[_label(row), *_cells(row, ks)] for row in rows[:limit]]))
    else:
        by_key = [{row.key: row for row in source.rows} for source in answer.sources]
        labels = {row.key: _label(row) for source in answer.sources for row in source.rows}
        cells = [[label, *(_cell(found.get(key)) for found in by_key)] for key, label in [*labels.items()][:limit]]
        parts.append(table(["task", *(_source_label(source, answer.sources) for source in answer.sources)], cells))
    total = len({row.key for source in answer.sources for row in source.rows})
    if limit is not None and total > limit:
        parts.append(f"… {total - limit:,} more tasks (all with --rows 0 or --json)")
    return "\n".join(parts)


def _header(ks: Sequence[int]) -> list[str]:
    headers = {name: [header] for name, (header, _) in _SHOWN.items()}
    headers["pass_rate"] += [f"pass@{k}" for k in ks]
    return [header for found in headers.values() for header in found]


def _cells(row: TaskFigures | SourceFigures, ks: Sequence[int]) -> list[str]:
    cells = {name: [number(getattr(row, name), f",.{digits}f")] for name, (_, digits) in _SHOWN.items()}
    cells["avg_reward"] = [_reward(row)]
    for k in ks:
        found = row.pass_at.get(k)
        value = found.value if isinstance(found, PassAt) else found
        partly = isinstance(row, SourceFigures) and isinstance(found, PassAt) and found.tasks < row.tasks_rated
        cells["pass_rate"].append(number(value, ".2f") + "*" * partly)
    return [cell for found in cells.values() for cell in found]


def _reward(row: TaskFigures | SourceFigures) -> str:
    return number(row.avg_reward, ",.2f") + (f" ±{row.reward_stderr:.2f}" if row.reward_stderr is not None else "")


def _label(row: TaskFigures) -> str:
    return task_label(row.key, row.id or row.name or row.prompt)


def _source_label(source: SourceFigures, sources: Sequence[SourceFigures]) -> str:
    several = len({other.env for other in sources}) > 1
    return f"{source.model} @ {source.env}" if several else source.model


def _cell(row: TaskFigures | None) -> str:
    if row is None:
        return "-"
    failed = row.errors + row.unscored
    return f"{_reward(row)} (n={row.attempts}{f', {failed} err' if failed else ''})"
