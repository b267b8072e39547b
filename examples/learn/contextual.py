"""Four beginnings, four endings: which ending belongs to which beginning is to be found out."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from examples.learn.curriculum import ANSWER_FILE, CONTENT, QUESTION, Filling, Problem, call

Words = Sequence[tuple[str, str]]
"""Beginnings and their endings. No two are spelled with the same letter in the same place: what a policy learns of one
would else be said of the other."""

WORDS: Words = (("ra", "in"), ("sn", "ow"), ("wi", "nd"), ("go", "ld"))


@dataclass(frozen=True)
class Contextual:
    """The ending is written right behind the beginning, so that what decides stands next to what is decided."""

    words: Words = WORDS
    scripts: Sequence[Sequence[str]] = ((call(f"printf {QUESTION}{CONTENT} > {ANSWER_FILE}"), "done"),)
    answer: str = QUESTION + CONTENT
    sub_calls: str = ""
    summaries: str = ""
    anchor: float = 0.2

    @property
    def chance(self) -> float:
        return 1 / len(self.words)

    def problem(self, name: str) -> Problem:
        return Problem(name, name, name + dict(self.words)[name])

    def demonstrations(self, draw: random.Random) -> Iterator[Filling]:
        for (beginning, _), (_, ending) in product(self.words, repeat=2):
            yield {QUESTION: beginning, CONTENT: ending}

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        chosen = [*self.words] * (count // len(self.words)) + draw.sample(self.words, count % len(self.words))
        return [self.problem(beginning) for beginning, _ in chosen]

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        return self.problems(draw, count)
