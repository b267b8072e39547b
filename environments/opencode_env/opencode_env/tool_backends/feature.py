"""Tool backends as a feature of an environment: its agents get the tools of MCP servers that a file describes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rollout_sandbox.outcomes import Outcome
from verifiers.v1.agent import Agents
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_env.cli_agent.features import Feature, Run
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.errors import BrokenBackendError
from opencode_env.tool_backends.options import BackendsConfig


class BackendTools(Feature):
    """Starts and removes what `--env.backends.file` describes."""

    outcomes = (
        Outcome(
            "a tool backend does not start",
            "mend it, its last words are in the message; `--env.backends.start-timeout`",
            errors=("ToolsetError",),
        ),
        BrokenBackendError.outcome,
    )

    def __init__(self, options: BackendsConfig) -> None:
        self._backends = None
        if options.file is not None:
            from opencode_env.tool_backends.serving import ToolBackends  # an MCP client, half a second

            self._backends = ToolBackends(options)

    def one_process(self) -> str:
        """A backend is shared by all rollouts: each worker would start another."""
        shared = self._backends is not None and self._backends.shares
        return "a tool backend of scope shared_global (--env.backends.file) is one for all rollouts" if shared else ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the backends that all rollouts share; a `ToolsetError` where one did not start."""
        if self._backends is None:
            yield
            return
        try:
            await self._backends.start()
            yield
        finally:
            await self._backends.stop()

    async def run(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout, run: Run) -> None:
        if self._backends is None:
            await run(task)
            return
        async with self._backends.equipped(task, box) as equipped:
            await run(equipped)
