"""What differs between two runs over the tasks that both rated, with an interval to believe it by."""

import random
import statistics
from typing import Any

from opencode_runs.difficulty.figures import TaskFigures

RESAMPLES = 2000
CREDIBLE = 0.95
SLACK = 1e-9


def compare(first: dict[str, TaskFigures], second: dict[str, TaskFigures]) -> dict[str, Any] | None:
    """Mean difference of the tasks' mean rewards (second less first), tasks won and lost; None if none is shared.

    The interval is a bootstrap over tasks: the percentiles of the means of 2,000 samples of the differences, drawn with
    replacement from a fixed seed.
    """
    shared = [key for key in first if key in second]
    pairs = [(key, first[key].avg_reward, second[key].avg_reward) for key in shared]
    differences = {key: after - before for key, before, after in pairs if before is not None and after is not None}
    if not differences:
        return None
    values = list(differences.values())
    low, high = interval(values)
    return {
        "tasks": len(values), "mean": statistics.fmean(values), "low": low, "high": high,
        "won": [key for key, value in differences.items() if value > SLACK],
        "lost": [key for key, value in differences.items() if value < -SLACK],
    }  # fmt: skip


def interval(values: list[float]) -> tuple[float | None, float | None]:
    """The bootstrap interval of a mean; None where there are fewer than two values."""
    if len(values) < 2:
        return None, None
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CREDIBLE) / 2
    return means[int(tail * RESAMPLES)], means[int((1 - tail) * RESAMPLES) - 1]
