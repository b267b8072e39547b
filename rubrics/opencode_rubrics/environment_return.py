"""Scores a rollout by what its simulated world gave for each step, in a ledger that the agent cannot reach."""

from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field
from rollout_sandbox.toolbox.scoring import exempt

from opencode_rubrics.rubric import AnyTrace, Rubric, RubricConfig


class EnvironmentReturnConfig(RubricConfig):
    """Options of `EnvironmentReturnRubric`."""

    type: Literal["environment-return"] = "environment-return"
    discount: float = Field(1.0, ge=0, le=1, allow_inf_nan=False)
    """The n-th step's reward (from 0) counts `discount` to the n; 1 is the plain return."""


class EnvironmentReturnRubric(Rubric[EnvironmentReturnConfig]):
    """Reward `environment_return`: the return of the episode; metrics say how it went."""

    version = "1"

    @vf.reward
    async def environment_return(self, trace: AnyTrace) -> float:
        """The discounted sum of the ledger's rewards."""
        steps = _ledger(trace)["steps"]
        return float(sum(step["reward"] * self.config.discount**index for index, step in enumerate(steps)))

    @vf.metric
    async def episode(self, trace: AnyTrace) -> dict[str, float]:
        """Steps, calls that changed nothing, and whether the world came to its own end."""
        summary = _ledger(trace)["summary"]
        return {
            "environment_steps": float(summary["steps"]),
            "environment_refused": float(summary["refused"]),
            "environment_terminated": float(summary["terminated"]),
        }


def _ledger(trace: AnyTrace) -> dict[str, Any]:
    found = trace.info.get("simulation")
    if not isinstance(found, dict):
        raise exempt(vf.TaskError('rubric "environment-return" needs a simulated world, and the rollout had none'))
    return found
