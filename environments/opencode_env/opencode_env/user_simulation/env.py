"""`ConversingEnv`: an `EquippedEnv` with a seat for the users that rows ask for."""

from typing import Any, ClassVar, Generic

from typing_extensions import TypeVar
from verifiers.v1.agent import Agents
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.seats import local_seat
from opencode_env.tool_backends.env import EquippedEnv, EquippedEnvConfig
from opencode_env.user_simulation.asked import asked_user
from opencode_env.user_simulation.conversation import converse
from opencode_env.user_simulation.options import UserSimulationConfig


class ConversingEnvConfig(EquippedEnvConfig):
    """An environment of one CLI agent, with tool backends and users."""

    user: AgentConfig = local_seat(NullHarnessConfig(id="null"))
    """Who plays the users that rows ask for: model, client, sampling and budgets. It runs no program, so its harness
    and runtime mean nothing; it never trains."""
    user_simulation: UserSimulationConfig = UserSimulationConfig()
    """How those users are played."""


ConfigT = TypeVar("ConfigT", bound=ConversingEnvConfig, default=ConversingEnvConfig)


class ConversingEnv(EquippedEnv[ConfigT], Generic[ConfigT]):
    """Runs its agent with its tool backends, and with the user that the row asks for."""

    SEATS_WITHOUT_SANDBOX: ClassVar[frozenset[str]] = frozenset({"user"})

    async def setup(self, agents: Agents) -> None:
        """A user is part of the world, and what it says no training data."""
        agents.user.trainable = False

    async def run_agent(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout) -> None:
        """Run the agent with what surrounds it; `rollout` begins when its trace is minted."""
        async with self.equipped(task, box) as equipped:
            asked = asked_user(equipped)
            if asked is None:
                await super().run_agent(equipped, agents, box, rollout)
            else:
                options = self.config.user_simulation
                await converse(equipped, agents, box, rollout.begin, asked, options, self.config.user)
