"""`RubricGroup`: several rubrics score one rollout, each with a weight."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import verifiers.v1 as vf
from pydantic import Field, model_validator
from pydantic_config import BaseConfig
from rollout_sandbox.confined.config import Bind
from rollout_sandbox.toolbox.scoring import not_the_agents

from opencode_rubrics.registry import AnyRubricConfig, live_rubric
from opencode_rubrics.rubric import UNREADABLE, AnyTrace, Rubric, RubricConfig, pay_nothing


class RubricMember(BaseConfig):
    """One rubric of a group."""

    rubric: AnyRubricConfig
    """Any rubric but a group."""
    weight: float = Field(1.0, allow_inf_nan=False)
    """Multiplies the weights of the rubric's own rewards."""


class RubricGroupConfig(RubricConfig):
    """Options of `RubricGroup`."""

    type: Literal["group"] = "group"
    members: list[RubricMember]
    """The rubrics, in the order in which they score."""

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        if not self.members:
            raise ValueError("a group needs at least one member: [[...rubric.members]] with a rubric of its own")
        if any(isinstance(member.rubric, RubricGroupConfig) for member in self.members):
            raise ValueError("a group cannot be a member of a group: list its members here, with their weights")
        return self


class RubricGroup(Rubric[RubricGroupConfig]):
    """Scores with each member in turn; where two record the same name, the later one's ends in `_2`, `_3`, ….

    In turn, because a member may end processes in the sandbox that another one is running.
    """

    version = "1"

    @property
    def members(self) -> Sequence[Rubric[Any]]:
        """The live rubrics of the group, whose cleanup hooks run as well."""
        return [live_rubric(member.rubric) for member in self.config.members]

    async def shared_directories(self) -> Sequence[Bind]:
        """What any member wants to see in the confined local sandbox."""
        found = [directory for rubric in self.members for directory in await rubric.shared_directories()]
        return list(dict.fromkeys(found))

    async def score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> None:
        """Record the rewards, with weights multiplied, and the metrics of every member; what keeps one from scoring is
        raised, and later members then do not score. If one cannot read what the agent made, none pays."""
        unreadable = 0.0
        with not_the_agents():
            rubrics = self.members
        for member, rubric in zip(self.config.members, rubrics, strict=True):
            rewards, metrics = trace.rewards, trace.metrics
            trace.rewards, trace.metrics = {}, {}
            try:
                await rubric.score(task, trace, runtime)
            finally:
                found, measured = trace.rewards, trace.metrics
                trace.rewards, trace.metrics = rewards, metrics
                for name, reward in found.items():
                    if reward is not None:
                        reward.weight *= member.weight
                    rewards[_free(name, rewards)] = reward
                unreadable = max(unreadable, measured.pop(UNREADABLE, None) or 0.0)
                for name, value in measured.items():
                    metrics[_free(name, metrics)] = value
        await super().score(task, trace, runtime)
        trace.record_metric(UNREADABLE, max(unreadable, trace.metrics[UNREADABLE] or 0.0))
        if trace.metrics[UNREADABLE]:
            pay_nothing(trace)


def _free(name: str, taken: dict[str, Any]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
