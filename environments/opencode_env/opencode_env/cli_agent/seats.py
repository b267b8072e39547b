"""The default seat of an environment, and how long its agent may work and be scored."""

import logging
import math
from typing import Any

from rollout_sandbox.told import task_name
from verifiers.v1.agent import Agent, TimeoutConfig
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.task import Task


def local_seat(harness: HarnessConfig) -> AgentConfig:
    """A seat with this harness in the confined local sandbox, as the default of an environment's configuration. Copied,
    not built with the harness: validating one resolves its id, which would import its package again."""
    return AgentConfig(runtime=SubprocessConfig()).model_copy(update={"harness": harness})


logger = logging.getLogger("verifiers.v1.opencode_env")

DEFAULT_ROLLOUT_SECONDS = 3600.0
"""An agent whose background child keeps its output open, or that waits for ever, holds its place no longer."""


def limit_rollout(agent: Agent, task: Task[Any, Any, Any], used: float = 0.0) -> None:
    """Give the agent the default limit, unless `--env.agent.timeout.rollout` or the task has one; `inf`: no limit. Of
    either, so many seconds are `used`."""
    limit = agent.timeout.rollout if agent.timeout.rollout is not None else task.data.timeout.agent
    if limit is None or used:
        left = max((DEFAULT_ROLLOUT_SECONDS if limit is None else limit) - used, 1.0)
        agent.timeout = agent.timeout.model_copy(update={"rollout": left})


def take_scoring_limit(agent: Agent, task: Task[Any, Any, Any]) -> float | None:
    """The seconds that scoring may take, which verifiers counts no more: waiting for a place would count there."""
    limit = scoring_limit(agent.timeout, task)
    agent.timeout = agent.timeout.model_copy(update={"scoring": math.inf})
    return limit


def scoring_limit(of_seat: TimeoutConfig, task: Task[Any, Any, Any]) -> float | None:
    """The seconds that scoring may take, by the seat, else by the task; None means no limit."""
    return of_seat.scoring if of_seat.scoring is not None else task.data.timeout.scoring


def warn_of_short_limit(task: Task[Any, Any, Any], limit: float | None, longest: float) -> None:
    """Say, when it is planned, that a task's programs may take longer by their own limits (seconds) than its scoring
    may (`limit`), once for each limit."""
    if limit is None or longest <= limit or (limit, longest) in _warned:
        return
    _warned.add((limit, longest))
    told = (
        "task %s: scoring has %g s (timeout.scoring), and its commands may take %g s by their own limits: raise the "
        "one or lower the others, else an agent's slow programs are a reward of 0 before their own limits are over"
    )
    logger.warning(told, task_name(task.data), limit, longest)


_warned: set[tuple[float, float]] = set()
