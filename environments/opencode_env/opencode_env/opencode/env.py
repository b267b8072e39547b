"""`OpenCodeEnv`: `CliAgentEnv` with the OpenCode harness, and what an agent can be surrounded with."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Self

from opencode_rubrics.verifiers_versions import OPENCODE_HARNESSES
from pydantic import model_validator
from verifiers.v1.agent import Agents
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from opencode_env.cli_agent.harness_files import NPM_AGENTS
from opencode_env.cli_agent.seats import local_seat
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.opencode import OpenCodeHarnessConfig
from opencode_env.opencode.verifiers_harness import opencode2_tree
from opencode_env.simulation.backends.options import BackendsConfig
from opencode_env.simulation.user.asked import asked_user
from opencode_env.simulation.user.conversation import converse
from opencode_env.simulation.user.options import UserSimulationConfig

NPM_AGENTS.update(dict.fromkeys(OPENCODE_HARNESSES, opencode2_tree))


class OpenCodeEnvConfig(CliAgentEnvConfig):
    """OpenCode in a sandbox; over any taskset with `--env.id opencode-env`."""

    agent: AgentConfig = local_seat(OpenCodeHarnessConfig(id="opencode-env"))
    """The seat: OpenCode in the confined local sandbox unless another runtime is named."""
    backends: BackendsConfig = BackendsConfig()
    """MCP servers whose tools the agent gets in every rollout."""
    user: AgentConfig = local_seat(NullHarnessConfig(id="null"))
    """Who plays the users that rows ask for: model, client, sampling and budgets. It runs no program, so its harness
    and runtime mean nothing; it never trains."""
    user_simulation: UserSimulationConfig = UserSimulationConfig()
    """How those users are played."""

    @model_validator(mode="after")
    def _backends_fail_before_the_agent_gives_up(self) -> Self:
        harness = self.agent.harness
        if (
            self.backends.file is not None
            and harness is not None
            and self.backends.call_timeout >= harness.tool_timeout
        ):
            raise ValueError(
                f"--env.backends.call-timeout {self.backends.call_timeout:g} must be below "
                f"--env.agent.harness.tool-timeout {harness.tool_timeout:g}: the agent would give a call up first, and "
                "nobody would know of the server that hangs"
            )
        return self


class OpenCodeEnv(CliAgentEnv[OpenCodeEnvConfig]):
    """Runs OpenCode on each task in a sandbox of its own and scores where it worked."""

    SEATS_WITHOUT_SANDBOX: ClassVar[frozenset[str]] = frozenset({"user"})

    def __init__(self, config: OpenCodeEnvConfig) -> None:
        super().__init__(config)
        self._backends = None
        if config.backends.file is not None:
            from opencode_env.simulation.backends.serving import ToolBackends  # an MCP client, half a second

            self._backends = ToolBackends(config.backends)

    async def setup(self, agents: Agents) -> None:
        """A user is part of the world, and what it says no training data."""
        agents.user.trainable = False

    async def start(self) -> None:
        """Start what all rollouts share.

        Raises:
            SandboxError: bubblewrap or podman does not work here.
            ToolsetError: a shared tool backend did not start.
        """
        await super().start()
        if self._backends is not None:
            await self._backends.start()

    async def stop(self) -> None:
        """Remove it, also after a failed start."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(super().stop)
            if self._backends is not None:
                stack.push_async_callback(self._backends.stop)

    async def run_agent(
        self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, on_trace: Callable[[AnyTrace], None]
    ) -> None:
        """Run the agent with its tool backends, and with the user that its row asks for."""
        async with AsyncExitStack() as stack:
            if self._backends is not None:
                task = await stack.enter_async_context(self._backends.equipped(task, box))
            asked = asked_user(task)
            if asked is None:
                await super().run_agent(task, agents, box, on_trace)
            else:
                options = self.config.user_simulation
                await converse(task, agents, box, on_trace, asked, options, self.config.user)
