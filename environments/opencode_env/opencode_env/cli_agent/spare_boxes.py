"""Offers scoring second sandboxes of the rollout that it scores (see `agent_sandbox.toolbox.scoring`)."""

import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from agent_sandbox.toolbox.scoring import BoxOrder, Provider, attach
from verifiers.v1.agent import Agent
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.features import TaskT, with_methods
from opencode_env.cli_agent.rollout import Rollout

Provision = Callable[[Task[Any, Any, Any], Agent, Rollout], AbstractAsyncContextManager[Runtime]]


def box_provider(provision: Provision, task: Task[Any, Any, Any], agent: Agent, rollout: Rollout) -> Provider:
    """Makes further sandboxes of a rollout by `provision`, with the task's own setup behind them."""

    @contextlib.asynccontextmanager
    async def spare(order: BoxOrder) -> AsyncIterator[Runtime]:
        ordered, lent = ordered_task(task, order), copy.copy(agent)
        async with provision(ordered, lent, rollout) as box:
            attach(rollout, box)
            await invoke(ordered.setup, {"trace": rollout.trace, "runtime": box, "deployment": None})
            yield box

    return spare


def ordered_task(task: TaskT, order: BoxOrder) -> TaskT:
    """The task as it is in a box that differs so from the agent's."""
    wanted = {"image": order.image, "workdir": order.workdir}
    changes = {name: value for name, value in wanted.items() if value is not None} | dict(order.data)
    variables = {**task.runtime_env(), **order.env}
    made = with_methods(task, runtime_env=lambda: variables)
    made.data = task.data.model_copy(update=changes)
    return made
