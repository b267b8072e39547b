"""What a task's attempts say about a group of G more: the probability that their outcomes are mixed.

A task passes with an unknown probability q. A group of G attempts teaches a group-relative learner something only if
some pass and some fail: P(mixed | q) = 1 - q^G - (1-q)^G. After c passes in n attempts, and before that a
Beta(a, b) prior, q is Beta(a+c, b+n-c) distributed, so the mean of P(mixed) has a closed form by
E[q^G] = prod_{i<G} (A+i)/(A+B+i). Its credible interval is worked out on a grid.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

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
    angles = [(i + 0.5) / GRID * math.pi / 2 for i in range(GRID)]
    # Substituting q = sin²(angle) multiplies the density by 2 sin cos, which tames its ends.
    logs = [(2 * a - 1) * math.log(math.sin(t)) + (2 * b - 1) * math.log(math.cos(t)) for t in angles]
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    values = [1 - math.sin(t) ** (2 * group) - math.cos(t) ** (2 * group) for t in angles]
    points = sorted(zip(values, weights, strict=True))
    total, tail = math.fsum(weights), (1 - credible) / 2
    return _quantile(points, tail * total), _quantile(points, (1 - tail) * total)


def _quantile(points: list[tuple[float, float]], mass: float) -> float:
    seen = 0.0
    for value, weight in points:
        seen += weight
        if seen >= mass:
            return max(0.0, value)
    return max(0.0, points[-1][0])
