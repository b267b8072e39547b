"""The confined local sandbox: a verifiers runtime in which one rollout runs under bubblewrap."""

from opencode_env.cli_agent.sandbox.arguments import require_private_workdir
from opencode_env.cli_agent.sandbox.bubblewrap import require_bubblewrap
from opencode_env.cli_agent.sandbox.config import Bind, LocalSandboxConfig
from opencode_env.cli_agent.sandbox.provision import provision_confined
from opencode_env.cli_agent.sandbox.runtime import ConfinedRuntime

__all__ = [
    "Bind",
    "ConfinedRuntime",
    "LocalSandboxConfig",
    "provision_confined",
    "require_bubblewrap",
    "require_private_workdir",
]
