"""The value of each turn: the mean reward of what went on from it, with an interval, by rollout."""

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from opencode_runs.difficulty.outputs import drawing
from opencode_runs.tables import short
from opencode_runs.turns.rewards import Rollout

CREDIBLE = 0.95
_GRID = 4000


class TurnValue(BaseModel):
    """What went on from one kept turn."""

    turn: int
    rewards: list[float]
    failed: int
    """Continuations without a reward."""
    value: float | None
    low: float | None
    high: float | None
    continuations: list["RolloutValues"]
    """Those of them from which others went on in turn."""


class RolloutValues(BaseModel):
    trace_id: str
    task: str
    reward: float | None
    """None where its run was not named, or where it failed."""
    turns: list[TurnValue]


class Tree(BaseModel):
    """The rollouts that others went on from, each with what went on from its turns."""

    trunks: list[RolloutValues]


def tree_of(rollouts: dict[str, Rollout]) -> Tree:
    """The values of all turns that rollouts went on from; a trunk is what itself went on from nothing that is known."""
    branches: dict[str, dict[int, list[Rollout]]] = {}
    for one in rollouts.values():
        if one.origin is not None:
            branches.setdefault(one.origin.trace_id, {}).setdefault(one.origin.turn, []).append(one)

    def values(trace_id: str) -> RolloutValues:
        known = rollouts.get(trace_id)
        turns = sorted(branches.get(trace_id, {}).items())
        called = known.task if known is not None else next((one.task for _, some in turns for one in some), "")
        return RolloutValues(
            trace_id=trace_id, task=called, reward=None if known is None else known.reward,
            turns=[
                _value(turn, some, [values(one.trace_id) for one in some if one.trace_id in branches])
                for turn, some in turns
            ],
        )  # fmt: skip

    roots = [name for name in branches if name not in rollouts or rollouts[name].origin is None]
    return Tree(trunks=[values(name) for name in roots])


def _value(turn: int, some: Sequence[Rollout], continued: list[RolloutValues]) -> TurnValue:
    rewards = [one.reward for one in some if one.reward is not None]
    low, high = interval(rewards)
    return TurnValue(
        turn=turn, rewards=rewards, failed=len(some) - len(rewards),
        value=statistics.fmean(rewards) if rewards else None, low=low, high=high, continuations=continued,
    )  # fmt: skip


def interval(rewards: Sequence[float]) -> tuple[float | None, float | None]:
    """Between which the mean lies with 95 %; None where the rewards do not tell.

    Rewards between 0 and 1 are taken for shares of passes, with Jeffreys' prior: exact where all are 0 or 1, else too
    wide. For others it is the normal interval of at least two.
    """
    if not rewards:
        return None, None
    if all(0.0 <= one <= 1.0 for one in rewards):
        passes = sum(rewards)
        angles = (np.arange(_GRID) + 0.5) / _GRID * math.pi / 2
        logs = 2 * passes * np.log(np.sin(angles)) + 2 * (len(rewards) - passes) * np.log(np.cos(angles))
        seen = np.cumsum(np.exp(logs - logs.max()))
        tail = (1 - CREDIBLE) / 2
        low, high = np.sin(angles[np.searchsorted(seen, [tail * seen[-1], (1 - tail) * seen[-1]])]) ** 2
        return float(low), float(high)
    if len(rewards) < 2:
        return None, None
    half = 1.96 * statistics.stdev(rewards) / math.sqrt(len(rewards))
    return statistics.fmean(rewards) - half, statistics.fmean(rewards) + half


def tree_text(tree: Tree) -> str:
    """The tree, a line for each rollout and each turn."""
    return "\n".join(line for trunk in tree.trunks for line in _lines(trunk, ""))


def _lines(rollout: RolloutValues, margin: str) -> Iterable[str]:
    reward = "" if rollout.reward is None else f", reward {rollout.reward:.2f}"
    yield f"{margin}{rollout.trace_id[:12]} ({short(rollout.task)}{reward})"
    for turn in rollout.turns:
        bounds = "" if turn.low is None else f"  [{turn.low:.2f}, {turn.high:.2f}]"
        value = "no reward" if turn.value is None else f"{turn.value:.2f}{bounds}"
        failed = f", {turn.failed} failed" if turn.failed else ""
        yield f"{margin}  turn {turn.turn:>3}  {value}  of {len(turn.rewards)} continuations{failed}"
        for one in turn.continuations:
            yield from _lines(one, f"{margin}      ")


def write_png(tree: Tree, path: Path) -> None:
    """Draw the value of each turn of each trunk with its interval.

    Raises:
        BadInputError: matplotlib is not installed, or the file cannot be written.
    """
    with drawing(path) as axes:
        for trunk in tree.trunks:
            points = [(one.turn, one.value, one.low, one.high) for one in trunk.turns if one.value is not None]
            below = [0.0 if low is None else max(0.0, value - low) for _, value, low, _ in points]
            above = [0.0 if high is None else max(0.0, high - value) for _, value, _, high in points]
            label = f"{short(trunk.task)} {trunk.trace_id[:6]}"
            at, values = [turn for turn, *_ in points], [value for _, value, *_ in points]
            axes.errorbar(at, values, [below, above], marker="o", capsize=3, label=label)
        axes.set_xlabel("turn")
        axes.set_ylabel("mean reward of what went on from it")
        axes.legend(fontsize="small")
