"""What a task's attempts say about a group of G more: the probability that their outcomes are mixed.

A task passes with an unknown probability q. A group of G attempts teaches a group-relative learner something only if
some pass and some fail: P(mixed | q) = 1 - q^G - (1-q)^G. After c passes in n attempts, and before that a
Beta(a, b) prior, q is Beta(a+c, b+n-c) distributed, so the mean of P(mixed) has a closed form by
E[q^G] = prod_{i<G} (A+i)/(A+B+i). Its credible interval is worked out on a grid.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

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
    angles = (np.arange(GRID) + 0.5) / GRID * math.pi / 2
    # Substituting q = sin²(angle) multiplies the density by 2 sin cos, which tames its ends.
    logs = (2 * a - 1) * np.log(np.sin(angles)) + (2 * b - 1) * np.log(np.cos(angles))
    values = np.maximum(1 - np.sin(angles) ** (2 * group) - np.cos(angles) ** (2 * group), 0)
    order = np.argsort(values)
    seen = np.cumsum(np.exp(logs - logs.max())[order])
    tail = (1 - credible) / 2
    low, high = values[order][np.searchsorted(seen, [tail * seen[-1], (1 - tail) * seen[-1]])]
    return float(low), float(high)
