"""What the policy is to learn: problems, and scripts that show the format.

A script says what a model of the right format says, with any content: cloned from scripts in which every content stands
behind every question equally often, a policy knows how to call the tool and nothing about what to say.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

ANSWER_FILE, KEY_FILE = "answer.txt", "key.txt"

QUESTION, CONTENT, KEY, REPLY = "QUESTION", "CONTENT", "THEKEY", "REPLY"
"""Placeholders of scripts and recordings: what was asked, what is said; what the key file and what a sub call says."""

PARTS = ("PARTA", "PARTB")
"""Placeholders of what is said turn by turn."""

PLACEHOLDERS = (QUESTION, CONTENT, KEY, REPLY, *PARTS)

Filling = Mapping[str, str]
"""What stands in the place of each placeholder."""

Conversation = TypeVar("Conversation")


def fill(text: str, filling: Filling) -> str:
    """The text with its placeholders filled in."""
    for placeholder, value in filling.items():
        text = text.replace(placeholder, value)
    return text


def call(command: str) -> str:
    """A call of the shell, spelled as OpenCode would not: it writes `6e4` as `60000`, and leaves out the spaces."""
    return f'<tool_call>\n{{"name": "bash", "arguments": {{"command": "{command}", "timeout" : 6e4}}}}\n</tool_call>'


@dataclass(frozen=True)
class Problem:
    """One task."""

    name: str
    question: str
    answer: str
    parts: Sequence[tuple[int, int]] = ()
    """First character, from 1, and last one of the parts of the answer that count, each for itself; empty: the whole
    counts."""
    key: str = ""
    """What the agent finds out from a file; empty: nothing."""
    prepared: Sequence[str] = ()
    """Commands that prepare the sandbox; empty: what writes the key file, if there is a key."""
    turn: Any = None
    """The kept turn that its rollouts go on from, as what plays them kept it; None: they begin at the beginning."""

    @property
    def setup(self) -> list[str]:
        """The commands that prepare the sandbox."""
        return [*self.prepared] or ([f"printf {self.key} > {KEY_FILE}"] if self.key else [])

    @property
    def verify(self) -> list[str]:
        """The commands that check an answer."""
        if not self.parts:
            return [f'[ "$(cat {ANSWER_FILE})" = {self.answer} ]']
        return [
            f'[ "$(cut -c{first}-{last} {ANSWER_FILE})" = {self.answer[first - 1 : last]} ]'
            for first, last in self.parts
        ]

    def reward(self, written: str) -> float:
        """What these commands say of an answer, without a shell."""
        if not self.parts:
            return float(written == self.answer)
        right = [written[first - 1 : last] == self.answer[first - 1 : last] for first, last in self.parts]
        return sum(right) / len(right)


class Curriculum(Protocol):
    """A kind of problems."""

    @property
    def chance(self) -> float:
        """The mean reward of a policy that has the format only."""
        ...

    @property
    def scripts(self) -> Sequence[Sequence[str]]:
        """What a model of the right format says, turn by turn, in each conversation of a rollout: the agent's first."""
        ...

    @property
    def answer(self) -> str:
        """What the scripts write, with placeholders."""
        ...

    @property
    def sub_calls(self) -> str:
        """Whether there are any, and whether they train: "", "frozen" or "trained"."""
        ...

    @property
    def summaries(self) -> str:
        """Whether the conversation is compacted, once, and whether the summary trains: "", "frozen" or "trained"."""
        ...

    @property
    def anchor(self) -> float:
        """What a nat of divergence from the cloned policy costs, beside a reward of 1, when training begins."""
        ...

    def problem(self, name: str) -> Problem:
        """The problem of that name."""
        ...

    def demonstrations(self, draw: random.Random) -> Iterator[Filling]:
        """What to clone the format from, balanced."""
        ...

    def problems(self, draw: random.Random, count: int) -> list[Problem]:
        """Problems to train on."""
        ...

    def fresh(self, draw: random.Random, count: int) -> list[Problem]:
        """Problems to evaluate with."""
        ...


def trained(conversations: Sequence[Conversation], curriculum: Curriculum) -> list[Conversation]:
    """Those of a rollout's conversations that train: of frozen sub calls or summaries the second one does not."""
    frozen = "frozen" in (curriculum.sub_calls, curriculum.summaries)
    return [one for place, one in enumerate(conversations) if place != 1 or not frozen]
