"""How long an agent may work when nobody has said it, and who counts the time of its scoring."""

import math
from typing import Any

from verifiers.v1.agent import Agent
from verifiers.v1.task import Task

DEFAULT_ROLLOUT_SECONDS = 3600.0
"""An agent whose background child keeps its output open, or that waits for ever, holds its place no longer."""


def limit_rollout(agent: Agent, task: Task[Any, Any, Any]) -> None:
    """Give the agent the default limit, unless `--env.agent.timeout.rollout` or the task has one; `inf` is none."""
    if agent.timeout.rollout is None and task.data.timeout.agent is None:
        agent.timeout = agent.timeout.model_copy(update={"rollout": DEFAULT_ROLLOUT_SECONDS})


def take_scoring_limit(agent: Agent, task: Task[Any, Any, Any]) -> float | None:
    """The seconds that scoring may take, which verifiers counts no more: waiting for a place would count there."""
    limit = agent.timeout.scoring if agent.timeout.scoring is not None else task.data.timeout.scoring
    agent.timeout = agent.timeout.model_copy(update={"scoring": math.inf})
    return limit
