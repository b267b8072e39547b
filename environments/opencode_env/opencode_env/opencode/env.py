"""`OpenCodeEnv`: `CliAgentEnv` with the OpenCode harness."""

from opencode_rubrics.verifiers_versions import OPENCODE_HARNESSES
from verifiers.v1.configs.agent import AgentConfig

from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from opencode_env.cli_agent.harness_files import NPM_AGENTS
from opencode_env.cli_agent.seats import local_seat
from opencode_env.opencode import OpenCodeHarnessConfig
from opencode_env.opencode.verifiers_harness import opencode2_tree

NPM_AGENTS.update(dict.fromkeys(OPENCODE_HARNESSES, opencode2_tree))


class OpenCodeEnvConfig(CliAgentEnvConfig):
    """OpenCode in a sandbox; over any taskset with `--env.id opencode-env`."""

    agent: AgentConfig = local_seat(OpenCodeHarnessConfig(id="opencode-env"))
    """The seat: OpenCode in the confined local sandbox unless another runtime is named."""


class OpenCodeEnv(CliAgentEnv[OpenCodeEnvConfig]):
    """Runs OpenCode on each task in a sandbox of its own and scores where it worked."""
