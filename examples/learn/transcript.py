"""One conversation of a real rollout as text, from which those of all other questions and contents follow.

Whatever the environment and the renderer put around what the model says is recorded, not written down here: the system
prompt with OpenCode's tools, the marks between turns, the results of commands.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Self

from opencode_runs.trainable.samples import TrainingSample

from examples.learn.curriculum import CONTENT, KEY, PLACEHOLDERS, QUESTION, Filling, fill
from examples.learn.tokenizer import ASSISTANT, END

LONG = 100
"""Characters of instructions that are as good as a system prompt."""
_EMPTY = dict.fromkeys(PLACEHOLDERS, " ")
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
    def constants(self) -> list[str]:
        """What is the same in all rollouts: the rendered system prompt with the tools, then long instructions."""
        first, *others = re.split("|".join((QUESTION, KEY, CONTENT)), self.given[0])
        return [first, *(text for text in others if len(text) >= LONG)]

    @property
    def rest(self) -> str:
        """Everything else."""
        empty = self.filled(_EMPTY)
        begun = empty.given[0]
        for text in self.constants:
            begun = begun.replace(text, " ", 1)
        return " ".join((begun, *empty.given[1:], *empty.said))

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
        """All that the model says in a conversation, trained or not; what it begins with was said in another one."""
        opening = self.given[0][self.given[0].rindex(ASSISTANT) :]
        return [part.partition(END)[0] + END for part in text.split(opening)[self.given[0].count(opening) :]]

    def lengths(self, tokenizer: Any) -> list[int]:
        """Its tokens up to the end of each answer, with a character in each placeholder."""
        tokens, mask = self.filled(_EMPTY).encoded(tokenizer)
        return [at for at in range(1, len(tokens) + 1) if mask[at - 1] and not (mask[at:] or [False])[0]]

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


def of_the_format(
    samples: Sequence[TrainingSample], recorded: Sequence[Transcript], tokenizer: Any
) -> list[TrainingSample]:
    """The samples of a rollout, in order, of which nothing trains behind the first answer that is not of the format.

    Agents go on behind such an answer, in contexts that no other rollout has: what is learnt there undoes the format.
    """
    expected = iter([(one, turn) for one in recorded for turn in range(len(one.said))])
    broken, kept = False, list[TrainingSample]()
    for sample in samples:
        mask: list[bool] = []
        for own, tokens in turns(sample):
            mask += [own and not broken] * len(tokens)
            if own and not broken:
                one, turn = next(expected, (None, 0))
                broken = one is None or one.read(tokenizer.decode(tokens), turn) is None
        kept.append(replace(sample, mask=mask))
    return kept


def full(recorded: Sequence[Transcript], tokenizer: Any) -> int:
    """The tokens from which on a conversation is compacted, so that it is where the recorded one was, and not again.

    Args:
        recorded: what came before, the summary, what came behind it.
        tokenizer: of the policy.

    Raises:
        RuntimeError: there is no such number.
    """
    before, _, behind = (one.lengths(tokenizer) for one in recorded)
    least, most = max(*before[:-1], *behind), before[-1]
    if least >= most:
        raise RuntimeError(f"nothing fills the window: {before} tokens before the compaction, {behind} behind it")
    return (least + most + 1) // 2
