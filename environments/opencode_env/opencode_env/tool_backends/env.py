"""`EquippedEnv`: a `CliAgentEnv` whose agents get the tools of MCP servers that a file describes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, Self

from pydantic import model_validator
from typing_extensions import TypeVar
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from opencode_env.tool_backends.options import BackendsConfig


class EquippedEnvConfig(CliAgentEnvConfig):
    """An environment of one CLI agent, with tool backends."""

    backends: BackendsConfig = BackendsConfig()
    """MCP servers whose tools the agent gets in every rollout."""

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


ConfigT = TypeVar("ConfigT", bound=EquippedEnvConfig, default=EquippedEnvConfig)


class EquippedEnv(CliAgentEnv[ConfigT], Generic[ConfigT]):
    """Starts and removes what `--env.backends.file` describes; a subclass runs its agent on the task of `equipped`."""

    def __init__(self, config: ConfigT) -> None:
        super().__init__(config)
        self._backends = None
        if config.backends.file is not None:
            from opencode_env.tool_backends.serving import ToolBackends  # an MCP client, half a second

            self._backends = ToolBackends(config.backends)

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

    @asynccontextmanager
    async def equipped(self, task: Task[Any, Any, Any], box: Runtime) -> AsyncIterator[Task[Any, Any, Any]]:
        """The task with the tools of the backends, if there are any, for one rollout whose agent is in `box`."""
        if self._backends is None:
            yield task
            return
        async with self._backends.equipped(task, box) as armed:
            yield armed
