"""An agent without a program: the environment's process asks another one to play it, and waits for its exit code.

It stands for OpenCode, whose echo rules and request rules its configuration has, so that hundreds of rollouts fit on a
machine on which hundreds of sandboxes would not. `--env.id simulated-agent` is `OpenCodeEnv` over it.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from rollout_sandbox.compat import Runtime, SubprocessBackend
from rollout_sandbox.interface import SandboxAbilities
from rollout_sandbox.provisioning import provisioned
from verifiers.v1.runtimes import SubprocessConfig

__all__ = ["SimulatedAgentEnv", "SimulatedAgentHarness", "SimulatedAgentTaskset"]

KILLED = 137


class SimulatedAgentConfig(OpenCodeHarnessConfig):
    """Where the agents are played."""

    agents: str = ""
    """Path of the socket of `benchmarks/_simulated_agents.py`."""


class SimulatedAgentHarness(vf.Harness[SimulatedAgentConfig]):
    """Has an agent played elsewhere; a connection that ends without an exit code is a killed agent."""

    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: Any,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        reader, writer = await asyncio.open_unix_connection(self.config.agents)
        try:
            wanted = {"number": data.idx, "round": ctx.model, "url": endpoint, "secret": secret}
            writer.write(json.dumps(wanted).encode() + b"\n")
            said = await reader.readline()
        finally:
            writer.close()
        return vf.ProgramResult(int(said) if said else KILLED, "", "")


class SimulatedAgentTask(vf.Task[vf.TaskData]):
    """Scores 1 wherever it is scored."""

    @vf.reward
    async def ended(self) -> float:
        return 1.0


class SimulatedAgentTasksetConfig(vf.TasksetConfig):
    """No options."""


class SimulatedAgentTaskset(vf.Taskset[SimulatedAgentTask, SimulatedAgentTasksetConfig]):
    """One task; whoever asks for rollouts numbers them."""

    def load(self) -> Iterator[SimulatedAgentTask]:
        yield SimulatedAgentTask(vf.TaskData(idx=0, prompt="Do what the script says."), self.config.task)


class NoSandbox(SandboxAbilities, Runtime):
    """verifiers' plain subprocess runtime, in which no process of an agent is ever started."""

    can_end_agent = True

    async def mark_agent_start(self) -> None:
        """Nothing to remember."""

    async def end_agent_processes(self) -> None:
        """Nothing to end."""


class NoBackend(SubprocessBackend):
    """What stands behind it."""

    def bind(self, *, env: Mapping[str, str] | None = None) -> NoSandbox:
        return NoSandbox(self, env=self.env if env is None else env)


class SimulatedAgentEnv(CliAgentEnv[CliAgentEnvConfig], vf.Env[CliAgentEnvConfig]):
    """`CliAgentEnv` whole, but for the sandbox."""

    @contextlib.asynccontextmanager
    async def _provision(self, task: Any, agent: Any, rollout: Any) -> AsyncIterator[Runtime]:
        async with provisioned(NoBackend(SubprocessConfig()), task.runtime_env()) as box:
            yield box
