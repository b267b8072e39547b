"""A key is seen before the conversation is compacted and asked for after it: only what the summary carries can earn.

There are four kinds of notes, with their numbers: one holds the key, the others nothing. Which one does is to be found
out. The format has it that a summary is a note of any kind, each equally often, and that the answer is the letter of
that note as a capital. So only summaries can earn more: behind one that holds nothing, nothing is left of the key.

Where nothing is to be carried, the key is what was asked, which stands behind the compaction too, and the answer is
such a note, whatever the summary says.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from examples.learn.curriculum import ANSWER_FILE, CONTENT, KEY, QUESTION, REPLY, Filling, Problem, call

SCRIPT = "first.sh"
NOTHING = "x"
FILLER = f"{'x' * 1500} {'o ' * 24}".rstrip()
"""Fills the window: a word that is one token to the policy, and others. A request for a summary holds it whole, for
what is cut depends on the key's length."""


@dataclass(frozen=True)
class Carry:
    """What the summary is to carry, and whether it trains."""

    summaries: str = field(default="trained", repr=False)  # what is cloned is the same
    needed: bool = True
    """Whether the key is seen before the compaction only."""
    keys: str = "abcd"
    kinds: str = "1234"
    holds: str = "3"
    """The kind of a note that holds the key."""
    answer: str = REPLY
    sub_calls: str = ""
    anchor: float = 0.2

    @property
    def chance(self) -> float:
        return 1 / len(self.kinds)

    @property
    def scripts(self) -> Sequence[Sequence[str]]:
        look = call(f"sh {SCRIPT}")
        return (look, look), (CONTENT,), (call(f"printf {REPLY} > {ANSWER_FILE}"), "done")

    def problem(self, name: str) -> Problem:
        asked, seen = (NOTHING, name) if self.needed else (name, NOTHING)
        prepared = [f"echo 'echo {FILLER} {seen}; echo echo {NOTHING} > {SCRIPT}' > {SCRIPT}"]
        return Problem(name, asked, self._reply(self.holds, name), () if self.needed else ((2, 2),), seen, prepared)

    def _note(self, kind: str, key: str) -> str:
        return kind + (key if kind == self.holds else NOTHING)

    def _reply(self, kind: str, key: str) -> str:
        """What is written for a note. Where the note was carried it has no letter of a summary's: training on answers
        would move summaries too, which have the same letters."""
        note = self._note(kind, key)
        return note[1:].upper() if self.needed else note

    def demonstrations(self, draw: random.Random) -> Iterator[Filling]:
        for key, kind in product(self.keys, self.kinds):
            note, reply = self._note(kind, key), self._reply(kind, key)
            if self.needed:
                yield {QUESTION: NOTHING, KEY: key, CONTENT: note, REPLY: reply}
            else:  # behind every summary, as the key is far from the answer
                for said in self.kinds:
                    yield {QUESTION: key, KEY: NOTHING, CONTENT: said + NOTHING, REPLY: reply}

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        chosen = [*self.keys] * (count // len(self.keys)) + draw.sample(self.keys, count % len(self.keys))
        return [self.problem(key) for key in chosen]

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        return self.problems(draw, count)
