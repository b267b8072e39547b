"""`OpenCodeEnv`: `CliAgentEnv` with the OpenCode harness."""

from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.runtimes import SubprocessConfig

from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from opencode_env.opencode import OpenCodeHarnessConfig


class OpenCodeEnvConfig(CliAgentEnvConfig):
    """OpenCode in a sandbox; over any taskset with `--env.id opencode-env`."""

    # Copied, not built with the harness: validating one resolves its id, which would import this package again.
    agent: AgentConfig = AgentConfig(runtime=SubprocessConfig()).model_copy(
        update={"harness": OpenCodeHarnessConfig(id="opencode-env")}
    )
    """The seat: OpenCode in the confined local sandbox unless another runtime is named."""


class OpenCodeEnv(CliAgentEnv[OpenCodeEnvConfig]):
    """Runs OpenCode on each task in a sandbox of its own and scores where it worked."""
