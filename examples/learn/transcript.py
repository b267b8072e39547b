"""One real rollout as text, from which the rollouts of all other questions and contents follow.

Whatever the environment and the renderer put around what the model says is recorded, not written down here: the system
prompt with OpenCode's tools, the marks between turns, the results of commands.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from opencode_env.trainable.samples import TrainingSample

QUESTION, CONTENT = "QUESTION", "CONTENT"
"""What stands for them in the recorded rollout."""


@dataclass(frozen=True)
class Transcript:
    """A recorded rollout: what the model is given and what it says, in turns."""

    given: tuple[str, ...]
    said: tuple[str, ...]

    @classmethod
    def of(cls, sample: TrainingSample, tokenizer: Any) -> Self:
        """The text of a rollout of one branch."""
        parts: dict[bool, list[str]] = {False: [], True: []}
        for own, run in groupby(zip(sample.mask, sample.token_ids, strict=True), key=lambda pair: pair[0]):
            parts[own].append(tokenizer.decode([token for _, token in run]))
        return cls(tuple(parts[False][: len(parts[True])]), tuple(parts[True]))

    @property
    def system(self) -> str:
        """The rendered system prompt, with the tools."""
        return self.given[0].partition(QUESTION)[0]

    @property
    def rest(self) -> str:
        """Everything that follows the question."""
        empty = self.filled(" ", " ")
        return " ".join((empty.given[0][len(self.system) :], *empty.given[1:], *empty.said))

    def filled(self, question: str, content: str) -> "Transcript":
        """The same rollout for another question, when another content was said."""

        def fill(text: str) -> str:
            return text.replace(QUESTION, question).replace(CONTENT, content)

        return Transcript(tuple(map(fill, self.given)), tuple(map(fill, self.said)))

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
