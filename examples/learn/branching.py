"""Groups of a step that go on from kept turns of the last one, beside those that begin at the beginning."""

import random
from collections.abc import Sequence

from examples.learn.curriculum import Problem
from examples.learn.rollouts import Rollout, problem_of


def branches(rollouts: Sequence[Rollout], draw: random.Random, count: int) -> list[tuple[str, Problem]]:
    """Kept turns of rollouts that missed something, as problems with the names of their groups.

    They are those of `opencode-turns choose --below 1`, without a rollout's first turn, which is the beginning, and
    without its last one, behind which nothing is written any more.

    Args:
        rollouts: of the last step.
        draw: what is drawn from.
        count: how many at most.
    """
    offered = [
        (f"{problem_of(rollout.group)}@{place}.{number}", rollout.turns[number])
        for place, rollout in enumerate(rollouts)
        if not rollout.error and rollout.reward < 1
        for number in sorted(rollout.turns)[:-1]
        if number > 1
    ]
    return draw.sample(offered, min(count, len(offered)))
