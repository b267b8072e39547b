"""Which tasks teach: the band of mean rewards whose groups of G are likely to have mixed outcomes.

A task passes with an unknown probability q. A group of G attempts teaches a group-relative learner something only if
some pass and some fail: P(mixed | q) = 1 - q^G - (1-q)^G. After c passes in n attempts q is Beta(1/2+c, 1/2+n-c)
distributed (Jeffreys' prior), so the mean of P(mixed) has a closed form by E[q^G] = prod_{i<G} (A+i)/(A+B+i).
"""

import math
from collections import Counter
from functools import lru_cache

import numpy as np
from pydantic import BaseModel

from opencode_runs.command import BadInputError, NothingUsableError, table
from opencode_runs.difficulty.rate import credible_interval
from opencode_runs.difficulty.rated import RatedFile

MAX_LINES = 40
CREDIBLE = 0.9
"""Of the interval of P(mixed)."""


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
    """Tasks with too few attempts to tell whether they teach."""
    useful: int
    """Other tasks, whose P(mixed) reaches the probability asked for."""
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
            f"wide to tell which tasks teach ({low:.2f} to {high:.2f} where none passed): play each task several times, "
            "as with `vf-eval -r 8`, and rate and join those, or raise -p"
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
    header = ["passed", "reward", "tasks", "P(mixed)", f"{CREDIBLE:.0%} interval", "teaches", "in band"]
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

    def mixed(rates: np.ndarray) -> np.ndarray:
        return np.maximum(1 - rates**group - (1 - rates) ** group, 0)

    a, b = 0.5 + passes, 0.5 + attempts - passes
    return max(0.0, 1.0 - power(a, b) - power(b, a)), *credible_interval(passes, attempts, CREDIBLE, mixed)
