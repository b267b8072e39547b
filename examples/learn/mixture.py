"""A third of the tasks is easy, a third teaches, a third is impossible, and nothing about a task says which it is."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from examples.learn.contextual import WORDS, Contextual, Words
from examples.learn.curriculum import QUESTION, Filling, Problem

EASY = ("be", "cl", "du", "ho")
"""Beginnings behind which every ending is right."""
IMPOSSIBLE = ("ku", "ly", "my", "pi")
"""Beginnings whose ending is not one that the format has."""


@dataclass(frozen=True)
class Mixture(Contextual):
    """The contextual problems among others."""

    words: Words = WORDS
    chosen: Sequence[str] = field(default=(*(beginning for beginning, _ in WORDS), *EASY, *IMPOSSIBLE))
    """The problems that are played, by name."""

    @property
    def chance(self) -> float:
        worth = {**dict.fromkeys(EASY, 1.0), **dict.fromkeys(IMPOSSIBLE, 0.0)}
        return sum(worth.get(name, super(Mixture, self).chance) for name in self.chosen) / len(self.chosen)

    def demonstrations(self, draw: random.Random) -> Iterator[Filling]:
        shown = [*super().demonstrations(draw)]
        yield from shown
        others = [
            {**filling, QUESTION: other} for other in (*EASY, *IMPOSSIBLE) for filling in shown[: len(self.words)]
        ]
        yield from draw.sample(others, len(others) // 2)

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        rounds = [draw.sample(self.chosen, len(self.chosen)) for _ in range(-(-count // len(self.chosen)))]
        return [self.problem(name) for name in [name for names in rounds for name in names][:count]]

    def problem(self, name: str) -> Problem:
        if name in EASY:
            return Problem(name, name, name, parts=((1, len(name)),))
        return Problem(name, name, name + dict(self.words).get(name, "zz"))
