"""`OpenCodeEnv`: the OpenCode harness in a `CliAgentEnv`, with all that an agent can be surrounded with."""

from agent_sandbox.verifiers_versions import OPENCODE_HARNESSES
from verifiers.v1.configs.agent import AgentConfig

from opencode_env.cli_agent.harness_files import NPM_AGENTS, NpmTree, agent_tree
from opencode_env.cli_agent.seats import local_seat
from opencode_env.opencode import OpenCodeHarnessConfig
from opencode_env.opencode.build_cache import host_platform
from opencode_env.opencode.state import program
from opencode_env.user_simulation.env import ConversingEnv, ConversingEnvConfig


def opencode2_tree(version: str) -> NpmTree:
    """What the sandbox shows of a release of OpenCode 2, for verifiers' own `opencode` harness.

    That harness installs `@opencode/cli`, a package that brings every build and picks one in an install script. Here
    only the build for this processor is installed, and a program of ours stands where the harness starts it.
    """
    build = host_platform().package.replace("opencode-linux", "@opencode/cli-linux")
    return agent_tree(
        "opencode2", f"{build}@{version}", programs={"node_modules/.bin/opencode": program("opencode2.sh")}
    )


NPM_AGENTS.update(dict.fromkeys(OPENCODE_HARNESSES, opencode2_tree))


class OpenCodeEnvConfig(ConversingEnvConfig):
    """OpenCode in a sandbox; over any taskset with `--env.id opencode-env`."""

    agent: AgentConfig = local_seat(OpenCodeHarnessConfig(id="opencode-env"))
    """The seat: OpenCode in the confined local sandbox unless another runtime is named."""


class OpenCodeEnv(ConversingEnv[OpenCodeEnvConfig]):
    """Runs OpenCode on each task in a sandbox of its own and scores where it worked."""
