"""One conversation of a real rollout as text, from which those of all other questions and contents follow.

Whatever the environment and the renderer put around what the model says is recorded, not written down here: the system
prompt with OpenCode's tools, the marks between turns, the results of commands.
"""

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from opencode_runs.trainable.samples import TrainingSample

from examples.learn.curriculum import CONTENT, KEY, PARTS, QUESTION, REPLY, Filling, fill
from examples.learn.tokenizer import ASSISTANT, END

_EMPTY = dict.fromkeys((QUESTION, CONTENT, KEY, REPLY, *PARTS), " ")
_WORDS = {placeholder: rf"(?P<{placeholder}>\w+)" for placeholder in _EMPTY}


@dataclass(frozen=True)
class Transcript:
    """A recorded conversation: what the model is given and what it says, turn by turn."""

    given: tuple[str, ...]
    said: tuple[str, ...]

    @classmethod
    def of(cls, sample: TrainingSample, tokenizer: Any) -> Self:
        """The text of a sample."""
        parts: dict[bool, list[str]] = {False: [], True: []}
        for own, tokens in turns(sample):
            parts[own].append(tokenizer.decode(tokens))
        return cls(tuple(parts[False][: len(parts[True])]), tuple(parts[True]))

    @property
    def system(self) -> str:
        """What comes before what differs from rollout to rollout: the rendered system prompt, with the tools."""
        return fill(self.given[0], dict.fromkeys((QUESTION, KEY), "\0")).partition("\0")[0]

    @property
    def rest(self) -> str:
        """Everything that follows it."""
        empty = self.filled(_EMPTY)
        return " ".join((empty.given[0][len(self.system) :], *empty.given[1:], *empty.said))

    def filled(self, filling: Filling) -> "Transcript":
        """The same conversation with other words."""
        given, said = (tuple(fill(text, filling) for text in texts) for texts in (self.given, self.said))
        return Transcript(given, said)

    def read(self, text: str, turn: int = 0) -> Filling | None:
        """What stands in the placeholders of an answer, by default the first one; None: it is not of this format."""
        said = self.said[turn] if turn < len(self.said) else ""
        found = re.fullmatch(fill(re.escape(said), _WORDS), text)
        return found.groupdict() if found else None

    def answers(self, text: str) -> list[str]:
        """All that the model says in a conversation, trained or not."""
        opening = self.given[0][self.given[0].rindex(ASSISTANT) :]
        return [part.partition(END)[0] + END for part in text.split(opening)[1:]]

    def encoded(self, tokenizer: Any) -> tuple[list[int], list[bool]]:
        """Its tokens, and which of them the model said."""
        tokens: list[int] = []
        mask: list[bool] = []
        for texts in zip(self.given, self.said, strict=True):
            for own, text in zip((False, True), texts, strict=True):
                ids = tokenizer.encode(text, add_special_tokens=False)
                tokens += ids
                mask += [own] * len(ids)
        return tokens, mask


def turns(sample: TrainingSample) -> list[tuple[bool, tuple[int, ...]]]:
    """The tokens that the model is given and those that it says, by turns; and whether it says them."""
    pairs = zip(sample.mask, sample.token_ids, strict=True)
    return [(own, tuple(token for _, token in run)) for own, run in groupby(pairs, key=lambda pair: pair[0])]
