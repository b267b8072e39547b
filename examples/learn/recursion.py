"""Half of the answer depends on a file that only a sub call reads: the agent's own program passes its reply on."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from examples.learn.contextual import WORDS, Words
from examples.learn.curriculum import (
    ANSWER_FILE,
    CONTENT,
    KEY,
    KEY_FILE,
    QUESTION,
    REPLY,
    Filling,
    Problem,
    call,
)


@dataclass(frozen=True)
class Recursion:
    """The agent completes the beginning that was asked, a sub call the one in the file; each half counts."""

    sub_calls: str = "trained"
    words: Words = WORDS
    sub_words: Words = (("ti", "me"), ("bo", "at"), ("fe", "rn"), ("lu", "ck"))
    scripts: Sequence[Sequence[str]] = (
        (call(f"printf {QUESTION}{CONTENT}$(llm <{KEY_FILE}) > {ANSWER_FILE}"), "done"),
        (KEY + REPLY,),
    )
    answer: str = QUESTION + CONTENT + KEY + REPLY
    summaries: str = ""
    anchor: float = 0.1

    @property
    def chance(self) -> float:
        return 1 / len(self.words)

    def problem(self, name: str) -> Problem:
        asked, _, key = name.partition("-")
        answer = asked + dict(self.words)[asked] + key + dict(self.sub_words)[key]
        return Problem(name, asked, answer, ((1, 4), (5, 8)), key)

    def demonstrations(self, draw: random.Random) -> Iterator[Filling]:
        of_sub = [*product(self.sub_words, repeat=2)]
        draw.shuffle(of_sub)
        for ((asked, _), (_, content)), ((key, _), (_, reply)) in zip(
            product(self.words, repeat=2), of_sub, strict=True
        ):
            yield {QUESTION: asked, CONTENT: content, KEY: key, REPLY: reply}

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        """Of as many pairs of beginnings, none of which is in more than `1 + count // len(words)` of them."""
        chosen = [*zip(self._mixed(self.words, draw, count), self._mixed(self.sub_words, draw, count), strict=True)]
        return [self.problem(f"{asked}-{key}") for (asked, _), (key, _) in chosen]

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        return self.problems(draw, count)

    def _mixed(self, words: Words, draw: random.Random, count: int) -> Words:
        return draw.sample([*words] * (1 + count // len(words)), count)
