"""Which tasks teach: the band of mean rewards whose groups of G are likely to have mixed outcomes."""

from collections import Counter
from typing import Literal, NamedTuple

from pydantic import BaseModel

from opencode_env.difficulty.errors import BadInputError, NothingUsableError
from opencode_env.difficulty.posterior import Prior, mixed_probability
from opencode_env.difficulty.rated import RatedFile
from opencode_env.difficulty.text import table

Criterion = Literal["mean", "low"]
MAX_LINES = 40


class Outcome(NamedTuple):
    """What is known of a task: tasks with the same outcome are the same to the recommendation."""

    attempts: int
    passes: int
    reward: float


class OutcomeFigures(BaseModel):
    """All tasks with one outcome."""

    passes: int
    attempts: int
    avg_reward: float
    tasks: int
    mixed: float
    """Posterior mean of the probability that a group has mixed outcomes."""
    low: float
    high: float
    useful: bool
    in_band: bool


class RecommendFigures(BaseModel):
    """The answer of `recommend`."""

    path: str
    column: str
    group_size: int
    probability: float
    criterion: Criterion
    credible: float
    prior: tuple[float, float]
    rows: int
    unrated: int
    useful: int
    """Tasks whose P(mixed) reaches the probability asked for."""
    min_avg_reward: float
    max_avg_reward: float
    kept: int
    """Tasks that a filter by the band keeps: the useful ones, and others between them."""
    mixed_per_epoch: float
    """Groups with mixed outcomes to expect when every kept task gets one group."""
    outcomes: list[OutcomeFigures]

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
        NothingUsableError: no row is rated, or no task reaches the probability.
    """
    if not (rated.has("attempts") and rated.has("passes")):
        missing = f'"{rated.prefix}attempts" and "{rated.prefix}passes"'
        raise BadInputError(f'"{rated.path}" lacks the columns {missing}, which `join` writes')
    tally: Counter[Outcome] = Counter()
    for row in rated.read():
        if row.reward is not None and row.attempts:
            tally[Outcome(row.attempts, row.passes or 0, row.reward)] += 1
    if not tally:
        raise NothingUsableError(f'"{rated.path}" has no rated row')
    outcomes = [_outcome(o, n, group, probability, criterion, credible, prior) for o, n in tally.items()]
    outcomes.sort(key=lambda o: (o.avg_reward, o.attempts, o.passes))
    useful = [o.avg_reward for o in outcomes if o.useful]
    if not useful:
        best = max(outcomes, key=lambda o: _verified(o, criterion))
        raise NothingUsableError(
            f"no task reaches P(mixed) {probability:g} in a group of {group}; the best has "
            f"{_verified(best, criterion):.2f} ({best.passes} of {best.attempts} passed): lower -p, or raise -G"
        )
    low, high = min(useful), max(useful)
    kept = [o.model_copy(update={"in_band": low <= o.avg_reward <= high}) for o in outcomes]
    return RecommendFigures(
        path=str(rated.path),
        column=rated.column,
        group_size=group,
        probability=probability,
        criterion=criterion,
        credible=credible,
        prior=(prior.a, prior.b),
        rows=rated.rows,
        unrated=rated.rows - tally.total(),
        useful=sum(o.tasks for o in kept if o.useful),
        min_avg_reward=low,
        max_avg_reward=high,
        kept=sum(o.tasks for o in kept if o.in_band),
        mixed_per_epoch=sum(o.tasks * o.mixed for o in kept if o.in_band),
        outcomes=kept,
    )


def recommend_text(figures: RecommendFigures) -> str:
    """The recommendation for a terminal."""
    share = figures.mixed_per_epoch / figures.kept
    rows = [
        [
            f"{o.passes}/{o.attempts}",
            f"{o.avg_reward:.3f}",
            f"{o.tasks:,}",
            f"{o.mixed:.2f}",
            f"{o.low:.2f} to {o.high:.2f}",
            "yes" if o.useful else "no",
            "yes" if o.in_band else "no",
        ]
        for o in figures.outcomes[:MAX_LINES]
    ]
    header = ["passed", "reward", "tasks", "P(mixed)", f"{figures.credible:.0%} interval", "teaches", "in band"]
    body = table(header, rows)
    if len(figures.outcomes) > MAX_LINES:
        body += f"\n… {len(figures.outcomes) - MAX_LINES:,} more outcomes (all with --json)"
    judged = "P(mixed)" if figures.criterion == "mean" else "lower end of P(mixed)"
    return "\n".join(
        [
            body,
            "",
            f"group of {figures.group_size}, {judged} ≥ {figures.probability:g}: "
            f"{figures.useful:,} of {figures.rows:,} tasks teach ({figures.unrated:,} unrated)",
            f"band {figures.min_avg_reward:g} to {figures.max_avg_reward:g} keeps {figures.kept:,} tasks; "
            f"{share:.0%} of their groups should have mixed outcomes",
            "",
            f"vf-eval: {figures.flags}",
            "",
            "TOML, in the taskset's table (prime-rl: [orchestrator.train.source.env.taskset]):",
            figures.toml,
        ]
    )


def _verified(outcome: OutcomeFigures, criterion: Criterion) -> float:
    return outcome.mixed if criterion == "mean" else outcome.low


def _outcome(
    outcome: Outcome,
    tasks: int,
    group: int,
    probability: float,
    criterion: Criterion,
    credible: float,
    prior: Prior,
) -> OutcomeFigures:
    mixed = mixed_probability(outcome.passes, outcome.attempts, group, prior, credible)
    figures = OutcomeFigures(
        passes=outcome.passes,
        attempts=outcome.attempts,
        avg_reward=outcome.reward,
        tasks=tasks,
        mixed=mixed.mean,
        low=mixed.low,
        high=mixed.high,
        useful=False,
        in_band=False,
    )
    return figures.model_copy(update={"useful": _verified(figures, criterion) >= probability})
