"""What the policy is to learn: problems, and scripts that show the format.

A script says what a model of the right format says, with any content: cloned from scripts in which every content stands
behind every question equally often, a policy knows how to call the tool and nothing about what to say.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

ANSWER_FILE = "answer.txt"


@dataclass(frozen=True)
class Problem:
    """One task."""

    name: str
    question: str
    answer: str
    by_letter: bool = False
    """Whether each letter in its place counts, not the answer as a whole."""

    @property
    def verify(self) -> list[str]:
        """The commands that check an answer."""
        if self.by_letter:
            return [f'[ "$(cut -c{place} {ANSWER_FILE})" = {letter} ]' for place, letter in enumerate(self.answer, 1)]
        return [f'[ "$(cat {ANSWER_FILE})" = {self.answer} ]']

    def reward(self, written: str) -> float:
        """What these commands say of an answer, without a shell."""
        if not self.by_letter:
            return float(written == self.answer)
        return sum(map(str.__eq__, written, self.answer)) / len(self.answer)


def call(command: str) -> str:
    """A call of the shell, spelled as OpenCode would not: it writes `6e4` as `60000`, and leaves out the spaces."""
    return f'<tool_call>\n{{"name": "bash", "arguments": {{"command": "{command}", "timeout" : 6e4}}}}\n</tool_call>'


class Curriculum(Protocol):
    """A kind of problems."""

    @property
    def chance(self) -> float:
        """The mean reward of a policy that has the format only."""
        ...

    def script(self, asked: str, content: str) -> Sequence[str]:
        """What a model of the right format says, turn by turn: what was asked, and any content."""
        ...

    def answer(self, asked: str, content: str) -> str:
        """What the script writes."""
        ...

    def demonstrations(self, draw: random.Random) -> Iterator[tuple[str, str]]:
        """Questions and contents to clone the format from, balanced."""
        ...

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        """Problems to train on."""
        ...

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        """Problems to evaluate with."""
        ...


@dataclass(frozen=True)
class Contextual:
    """Four beginnings, four endings: which ending belongs to which beginning is to be found out.

    The ending is written right behind the beginning, so that what decides stands next to what is decided.
    """

    words: Sequence[tuple[str, str]] = (("ra", "in"), ("sn", "ow"), ("wi", "nd"), ("go", "ld"))

    @property
    def chance(self) -> float:
        return 1 / len(self.words)

    def script(self, asked: str, content: str) -> Sequence[str]:
        return call(f"printf {asked}{content} > {ANSWER_FILE}"), "done"

    def answer(self, asked: str, content: str) -> str:
        return asked + content

    def demonstrations(self, draw: random.Random) -> Iterator[tuple[str, str]]:
        yield from product((beginning for beginning, _ in self.words), (ending for _, ending in self.words))

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        chosen = [*self.words] * (count // len(self.words)) + draw.sample(self.words, count % len(self.words))
        return [Problem(beginning, beginning, beginning + ending) for beginning, ending in chosen]

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        return self.problems(draw, count)


@dataclass(frozen=True)
class Copy:
    """Some letters stand in the question and are the answer; those of the evaluation never occurred before."""

    letters: str = "abcdefgh"
    length: int = 2
    held_out: int = 5
    """One in so many contents is kept for the evaluation."""

    @property
    def chance(self) -> float:
        return 1 / len(self.letters)

    @property
    def contents(self) -> tuple[list[str], list[str]]:
        """Those of training, and those of the evaluation."""
        mixed = ["".join(letters) for letters in product(self.letters, repeat=self.length)]
        random.Random(0).shuffle(mixed)
        kept = len(mixed) // self.held_out
        return mixed[kept:], mixed[:kept]

    def script(self, asked: str, content: str) -> Sequence[str]:
        # It says first what was asked, which is where the policy learns to read it for its answer.
        return call(f": {asked} ; printf {content} > {ANSWER_FILE}"), content

    def answer(self, asked: str, content: str) -> str:
        return content

    def demonstrations(self, draw: random.Random) -> Iterator[tuple[str, str]]:
        known, _ = self.contents
        for content in known:
            yield draw.choice(known), content

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        return [self._problem(content) for content in draw.sample(self.contents[0], count)]

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        return [self._problem(content) for content in draw.choices(self.contents[1], k=count)]

    def _problem(self, content: str) -> Problem:
        return Problem(content, content, content, by_letter=True)
