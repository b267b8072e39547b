"""Which tasks teach: the band of mean rewards whose groups of G are likely to have mixed outcomes.

A task passes with an unknown probability q. A group of G attempts teaches a group-relative learner something only if
some pass and some fail: P(mixed | q) = 1 - q^G - (1-q)^G. After c passes in n attempts, and before that a
Beta(a, b) prior, q is Beta(a+c, b+n-c) distributed, so the mean of P(mixed) has a closed form by
E[q^G] = prod_{i<G} (A+i)/(A+B+i). Its credible interval is worked out on a grid.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import BaseModel

from opencode_runs.command import BadInputError, NothingUsableError, table
from opencode_runs.difficulty.rated import RatedFile

Criterion = Literal["mean", "low"]
MAX_LINES = 40
GRID = 2000
"""Points of the grid; they lie evenly in the angle of q = sin²(angle), close together near 0 and 1."""


@dataclass(frozen=True, slots=True)
class Prior:
    """A Beta(a, b) belief about pass rates before any attempt; Jeffreys' a = b = 1/2 leans to the ends."""

    a: float = 0.5
    b: float = 0.5


@dataclass(frozen=True, slots=True)
class Mixed:
    """The probability that a group has mixed outcomes: its posterior mean and credible interval."""

    mean: float
    low: float
    high: float


class AlikeTasks(BaseModel):
    """All tasks with the same attempts, passes and mean reward: to the recommendation they are the same."""

    passes: int
    attempts: int
    avg_reward: float
    tasks: int
    mixed: float
    """Posterior mean of the probability that a group has mixed outcomes."""
    low: float
    high: float
    useful: bool = False
    in_band: bool = False


class RecommendFigures(BaseModel):
    path: str
    column: str
    group_size: int
    probability: float
    criterion: Criterion
    credible: float
    prior: tuple[float, float]
    rows: int
    unrated: int
    untold: int
    """Tasks with one attempt, which is always alike with itself: whether they teach cannot be told."""
    useful: int
    """Tasks of at least two attempts whose P(mixed) reaches the probability asked for."""
    min_avg_reward: float
    max_avg_reward: float
    kept: int
    """Tasks that a filter by the band keeps: the useful ones, and others between them."""
    mixed_per_epoch: float
    """Groups with mixed outcomes to expect when every kept task gets one group."""
    outcomes: list[AlikeTasks]

    @property
    def toml(self) -> str:
        """The filter as a piece of a config file."""
        return (
            f'difficulty_key = "{self.column}"\n'
            f"min_avg_reward = {self.min_avg_reward!r}\nmax_avg_reward = {self.max_avg_reward!r}"
        )

    @property
    def flags(self) -> str:
        """The filter as vf-eval's options."""
        return (
            f"--env.taskset.difficulty-key {self.column} --env.taskset.min-avg-reward {self.min_avg_reward!r} "
            f"--env.taskset.max-avg-reward {self.max_avg_reward!r}"
        )


def recommend(
    rated: RatedFile, *, group: int, probability: float, criterion: Criterion, credible: float, prior: Prior
) -> RecommendFigures:
    """Propose the band of `rated` that keeps every task with P(mixed in a group of `group`) >= `probability`.

    Raises:
        BadInputError: the file does not say how many attempts passed.
        NothingUsableError: no row is rated, none has two attempts, or no task reaches the probability.
    """
    alike = _alike(rated, group, credible, prior)
    told = [found for found in alike if found.attempts > 1]
    if not told:
        raise NothingUsableError(
            f"every task has one attempt, which cannot tell whether those of a group of {group} would differ: play "
            "each task several times, as with `vf-eval -r 8`, and rate and join those"
        )
    for found in told:
        found.useful = _judged(found, criterion) >= probability
    useful = [found for found in told if found.useful]
    if not useful:
        best = max(told, key=lambda found: _judged(found, criterion))
        raise NothingUsableError(
            f"no task reaches P(mixed) {probability:g} in a group of {group}; the best has "
            f"{_judged(best, criterion):.2f} ({best.passes} of {best.attempts} passed): lower -p, or raise -G"
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
        criterion=criterion,
        credible=credible,
        prior=(prior.a, prior.b),
        rows=rated.rows,
        unrated=rated.rows - sum(found.tasks for found in alike),
        untold=sum(found.tasks for found in alike if found.attempts == 1),
        useful=sum(found.tasks for found in useful),
        min_avg_reward=low,
        max_avg_reward=high,
        kept=sum(found.tasks for found in kept),
        mixed_per_epoch=sum(found.tasks * found.mixed for found in kept),
        outcomes=alike,
    )


def recommend_text(figures: RecommendFigures) -> str:
    yes = {True: "yes", False: "no"}
    untold = f", {figures.untold:,} with one attempt, which cannot tell" if figures.untold else ""
    rows = [
        [f"{o.passes}/{o.attempts}", f"{o.avg_reward:.3f}", f"{o.tasks:,}", f"{o.mixed:.2f}",
         f"{o.low:.2f} to {o.high:.2f}", yes[o.useful] if o.attempts > 1 else "?", yes[o.in_band]]
        for o in figures.outcomes[:MAX_LINES]
    ]  # fmt: skip
    header = ["passed", "reward", "tasks", "P(mixed)", f"{figures.credible:.0%} interval", "teaches", "in band"]
    body = table(header, rows)
    if len(figures.outcomes) > MAX_LINES:
        body += f"\n… {len(figures.outcomes) - MAX_LINES:,} more outcomes (all with --json)"
    judged = "P(mixed)" if figures.criterion == "mean" else "lower end of P(mixed)"
    return f"""{body}

group of {figures.group_size}, {judged} ≥ {figures.probability:g}: \
{figures.useful:,} of {figures.rows:,} tasks teach ({figures.unrated:,} unrated{untold})
band {figures.min_avg_reward:g} to {figures.max_avg_reward:g} keeps {figures.kept:,} tasks; \
{figures.mixed_per_epoch / figures.kept:.0%} of their groups should have mixed outcomes

vf-eval: {figures.flags}

TOML, in the taskset's table (prime-rl: [orchestrator.train.source.env.taskset]):
{figures.toml}"""


def _alike(rated: RatedFile, group: int, credible: float, prior: Prior) -> list[AlikeTasks]:
    """The rated tasks, from the least mean reward to the greatest."""
    if not (rated.has("attempts") and rated.has("passes")):
        missing = f'"{rated.prefix}attempts" and "{rated.prefix}passes"'
        raise BadInputError(f'"{rated.path}" lacks the columns {missing}, which `join` writes')
    rows = ((row.reward, row.attempts, row.passes or 0) for row in rated.read() if row.reward is not None)
    tally = Counter((reward, attempts, passes) for reward, attempts, passes in rows if attempts)
    if not tally:
        raise NothingUsableError(f'"{rated.path}" has no rated row')
    alike = []
    for (reward, attempts, passes), tasks in sorted(tally.items()):
        mixed = mixed_probability(passes, attempts, group, prior, credible)
        alike.append(
            AlikeTasks(
                passes=passes, attempts=attempts, avg_reward=reward, tasks=tasks,
                mixed=mixed.mean, low=mixed.low, high=mixed.high,
            )
        )  # fmt: skip
    return alike


def _judged(found: AlikeTasks, criterion: Criterion) -> float:
    return found.mixed if criterion == "mean" else found.low


@lru_cache(maxsize=65536)
def mixed_probability(passes: int, attempts: int, group: int, prior: Prior, credible: float) -> Mixed:
    """P(mixed) of a group of `group` attempts after `passes` of `attempts`, with a `credible` interval (0 to 1)."""
    a, b = prior.a + passes, prior.b + attempts - passes
    mean = 1.0 - _moment(a, b, group) - _moment(b, a, group)
    low, high = _interval(a, b, group, credible)
    return Mixed(max(0.0, mean), low, high)


def _moment(a: float, b: float, power: int) -> float:
    """E[q^power] of q ~ Beta(a, b)."""
    return math.prod((a + i) / (a + b + i) for i in range(power))


def _interval(a: float, b: float, group: int, credible: float) -> tuple[float, float]:
    """The central interval of P(mixed | q) that holds `credible` of the posterior."""
    angles = (np.arange(GRID) + 0.5) / GRID * math.pi / 2
    # Substituting q = sin²(angle) multiplies the density by 2 sin cos, which tames its ends.
    logs = (2 * a - 1) * np.log(np.sin(angles)) + (2 * b - 1) * np.log(np.cos(angles))
    values = np.maximum(1 - np.sin(angles) ** (2 * group) - np.cos(angles) ** (2 * group), 0)
    order = np.argsort(values)
    seen = np.cumsum(np.exp(logs - logs.max())[order])
    tail = (1 - credible) / 2
    low, high = values[order][np.searchsorted(seen, [tail * seen[-1], (1 - tail) * seen[-1]])]
    return float(low), float(high)
