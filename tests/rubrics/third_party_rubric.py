"""A rubric of somebody else's package."""

from typing import Literal

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, Rubric, RubricConfig, cleanup


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


class NoRubric:
    """Something else."""
