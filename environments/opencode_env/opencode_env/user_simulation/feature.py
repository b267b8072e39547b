"""Simulated users as a feature of an environment: the user that a row asks for answers its agent."""

from typing import Any

from verifiers.v1.agent import Agents
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_env.cli_agent.features import Feature, Run
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.user_simulation.asked import asked_user
from opencode_env.user_simulation.conversation import converse
from opencode_env.user_simulation.options import UserSimulationConfig


class SimulatedUsers(Feature):
    """Plays them from the seat `user`, which runs no program; it has to be the last feature, since it runs the agent.

    Args:
        options: how they are played.
        seat: the configuration of the seat `user`.
    """

    def __init__(self, options: UserSimulationConfig, seat: AgentConfig) -> None:
        self._options = options
        self._seat = seat

    def setup(self, agents: Agents) -> None:
        """A user is part of the world, and what it says no training data."""
        agents.user.trainable = False

    async def run(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout, run: Run) -> None:
        """Run the agent with the user that the row asks for, if it asks for one."""
        asked = asked_user(task)
        if asked is None:
            await run(task)
        else:
            await converse(task, agents, box, rollout.begin, asked, self._options, self._seat)
