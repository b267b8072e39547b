"""How long an agent may work when nobody has said it."""

from typing import Any

from verifiers.v1.agent import Agent
from verifiers.v1.task import Task

DEFAULT_ROLLOUT_SECONDS = 3600.0
"""An agent whose background child keeps its output open, or that waits for ever, holds its place no longer."""


def limit_rollout(agent: Agent, task: Task[Any, Any, Any]) -> None:
    """Give the agent the default limit, unless `--env.agent.timeout.rollout` or the task has one; `inf` is none."""
    if agent.timeout.rollout is None and task.data.timeout.agent is None:
        agent.timeout = agent.timeout.model_copy(update={"rollout": DEFAULT_ROLLOUT_SECONDS})
