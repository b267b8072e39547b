"""A rubric of somebody else's package."""

from typing import Literal

import verifiers.v1 as vf
from opencode_rubrics import AnswerRubric, AnyTrace, Rubric, RubricConfig, cleanup


class LengthConfig(RubricConfig):
    """Its own options."""

    type: Literal["length"] = "length"
    most: int = 10


class LengthRubric(Rubric[LengthConfig]):
    """Rewards short replies."""

    @vf.reward
    async def short(self, trace: AnyTrace) -> float:
        return float(len(trace.last_reply) <= self.config.most)

    @cleanup()
    def tidy(self, trace: AnyTrace) -> None:
        trace.info["tidied"] = True


class WordsConfig(RubricConfig):
    """Options of every kind, and no `type` of its own."""

    words: list[str] = []
    version: str = ""
    strict: bool = False


class WordsRubric(Rubric[WordsConfig]):
    """Rewards replies that hold all words."""

    @vf.reward
    async def said(self, trace: AnyTrace) -> float:
        return float(all(word in trace.last_reply for word in self.config.words))


class GenerousRubric(AnswerRubric):
    """One of ours with a difference, and its options."""

    @vf.reward(weight=0.5)
    async def anything(self) -> float:
        return 1.0


class NoRubric:
    """Something else."""
