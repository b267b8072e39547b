"""What an environment is composed of beside its agent: features, such as tool backends or simulated users, and
how they lay something around a task."""

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from rollout_sandbox.outcomes import Outcome
from rollout_sandbox.toolbox.scoring import SecondSandboxOptions
from verifiers.v1.agent import Agents
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_env.cli_agent.outcomes import all_outcomes
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cluster.claims import Claims
from opencode_env.compat import with_methods

Run = Callable[[Task[Any, Any, Any]], Awaitable[object]]
"""Runs the agent on a task, to the end of its scoring."""


class Feature:
    """One feature of an environment (`CliAgentEnvConfig.features`); a subclass overrides what it needs."""

    outcomes: ClassVar[Sequence[Outcome]] = ()
    """The ways in which a rollout can end for the feature's sake."""

    def one_process(self) -> str:
        """Say why one process has to play all rollouts, which a cluster's workers cannot; empty: none has to."""
        return ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold what all rollouts share, from the start of the environment to its stop."""
        yield

    def claims(self) -> Claims | None:
        """Return what a cluster's tries claim that write into a folder of all nodes; None: they write into none."""
        return None

    def setup(self, agents: Agents) -> None:
        """Decide what becomes of the episode's seats, before anything runs."""

    @asynccontextmanager
    async def playing(self, task: Task[Any, Any, Any], agents: Agents, rollout: Rollout) -> AsyncIterator[None]:
        """Hold what one rollout needs, from before its sandbox is made until that is gone. Adds to `rollout.features`
        what is told of its events, and sets `rollout.before` where it is not played from its beginning."""
        yield

    async def run(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout, run: Run) -> None:
        """Run the agent with this feature, by default as it is, in its sandbox `box`; `run` is the features after this
        one, and the agent, and gets the task or a copy of it. The rollout begins when its trace is minted. Features run
        in the order of `features()`: one that puts files into an untouched sandbox, as kept turns do, comes first, and
        one that runs the agent itself, as simulated users do, last."""
        await run(task)


def outcomes_of(features: Iterable[Feature]) -> list[Outcome]:
    """Return every way in which a rollout can end in an environment with these features."""
    return all_outcomes(row for feature in features for row in feature.outcomes)


TaskT = TypeVar("TaskT", bound=Task[Any, Any, Any])


def ordered_task(task: TaskT, order: SecondSandboxOptions) -> TaskT:
    """The task as it is in a box that differs so from the agent's."""
    wanted = {"image": order.image, "workdir": order.workdir}
    changes = {name: value for name, value in wanted.items() if value is not None} | dict(order.data)
    variables = {**task.runtime_env(), **order.env}
    made = with_methods(copy.copy(task), runtime_env=lambda: variables)
    made.data = task.data.model_copy(update=changes)
    return made
