"""Each letter of the question is to be written twice; the questions of the evaluation never occurred before.

The format has it that each letter is written once, with any letter behind it: for that a policy must read, from cloning
on. That what it read is what comes next is to be found out.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from examples.learn.curriculum import ANSWER_FILE, CONTENT, PARTS, QUESTION, Filling, Problem, call


@dataclass(frozen=True)
class Copy:
    """Only the second of each two letters counts."""

    letters: str = "abcd"
    length: int = 3
    """Of a question."""
    held_out: int = 4
    """One in so many questions is kept for the evaluation."""
    shown: int = 24
    """Questions of one step of cloning."""
    scripts: Sequence[Sequence[str]] = ((call(f"printf {CONTENT} > {ANSWER_FILE}"), "done"),)
    answer: str = CONTENT
    sub_calls: str = ""
    summaries: str = ""
    anchor: float = 0.05
    """Little: the cloned policy is unsure of what it reads, and is to become surer."""

    @property
    def chance(self) -> float:
        return 1 / len(self.letters)

    @property
    def questions(self) -> tuple[list[str], list[str]]:
        """Those of cloning and training, and those of the evaluation."""
        mixed = ["".join(letters) for letters in product(self.letters, repeat=self.length)]
        random.Random(0).shuffle(mixed)
        kept = len(mixed) // self.held_out
        return mixed[kept:], mixed[:kept]

    def demonstrations(self, draw: random.Random) -> Iterator[Filling]:
        for question in draw.sample(self.questions[0], self.shown):
            yield self.filling(question, draw.choices(self.letters, k=self.length))

    def filling(self, question: str, others: Sequence[str]) -> Filling:
        """An answer that writes these letters behind those of the question."""
        return {QUESTION: question, CONTENT: _between(question, others)}

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        known = self.questions[0]
        return [self.problem(question) for question in draw.sample(known * -(-count // len(known)), count)]

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        return [self.problem(question) for question in draw.choices(self.questions[1], k=count)]

    def problem(self, name: str) -> Problem:
        parts = tuple((place, place) for place in range(2, 2 * self.length + 1, 2))
        return Problem(name, name, _between(name, name), parts)


def _between(letters: str, others: Sequence[str]) -> str:
    return "".join(letter + other for letter, other in zip(letters, others, strict=True))


@dataclass(frozen=True)
class CopyByTurns(Copy):
    """Each letter in a turn of its own, behind its number: `1a2b` is answered by `1aa`, then `2bb`."""

    length: int = len(PARTS)
    shown: int = 12
    scripts: Sequence[Sequence[str]] = ((*(call(f"printf {part} >> {ANSWER_FILE}") for part in PARTS), "done"),)
    answer: str = "".join(PARTS)
    anchor: float = 0.0
    """None, so that what groups from kept turns bring is compared under plain GRPO."""

    def filling(self, question: str, others: Sequence[str]) -> Filling:
        return {QUESTION: "".join(_numbered(question)), **dict(zip(PARTS, _numbered(question, others), strict=True))}

    def problem(self, name: str) -> Problem:
        parts = tuple((place, place) for place in range(3, 3 * self.length + 1, 3))
        return Problem(name, "".join(_numbered(name)), "".join(_numbered(name, name)), parts)


def _numbered(*letters: Sequence[str]) -> list[str]:
    return [f"{number}{''.join(each)}" for number, each in enumerate(zip(*letters, strict=True), 1)]
