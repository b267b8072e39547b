"""`OpenCodeEnv`: the OpenCode harness in a `CliAgentEnv`, with all that an agent can be surrounded with."""

from opencode_rubrics.verifiers_versions import OPENCODE_HARNESSES
from verifiers.v1.configs.agent import AgentConfig

from opencode_env.cli_agent.harness_files import NPM_AGENTS
from opencode_env.cli_agent.seats import local_seat
from opencode_env.opencode import OpenCodeHarnessConfig
from opencode_env.opencode.verifiers_harness import opencode2_tree
from opencode_env.user_simulation.env import ConversingEnv, ConversingEnvConfig

NPM_AGENTS.update(dict.fromkeys(OPENCODE_HARNESSES, opencode2_tree))


class OpenCodeEnvConfig(ConversingEnvConfig):
    """OpenCode in a sandbox; over any taskset with `--env.id opencode-env`."""

    agent: AgentConfig = local_seat(OpenCodeHarnessConfig(id="opencode-env"))
    """The seat: OpenCode in the confined local sandbox unless another runtime is named."""


class OpenCodeEnv(ConversingEnv[OpenCodeEnvConfig]):
    """Runs OpenCode on each task in a sandbox of its own and scores where it worked."""
