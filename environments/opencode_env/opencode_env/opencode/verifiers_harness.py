"""verifiers' own `opencode` harness in the confined sandbox: where its OpenCode 2 comes from.

Its set-up installs `@opencode/cli`, a package that brings every build and picks one in an install script. Here only
the build for this processor is installed, and a program of ours stands where the harness starts it.
"""

from opencode_env.cli_agent.harness_files import NpmTree, agent_tree
from opencode_env.opencode.build_cache import host_platform
from opencode_env.opencode.state import program


def opencode2_tree(version: str) -> NpmTree:
    """What the sandbox shows of a release of OpenCode 2."""
    build = host_platform().package.replace("opencode-linux", "@opencode/cli-linux")
    return agent_tree(
        "opencode2", f"{build}@{version}", programs={"node_modules/.bin/opencode": program("opencode2.sh")}
    )
