"""The confined local sandbox: a verifiers runtime in which one rollout runs under bubblewrap."""

from agent_sandbox.confined.arguments import require_private_workdir
from agent_sandbox.confined.bubblewrap import require_bubblewrap
from agent_sandbox.confined.config import Bind, LocalSandboxConfig
from agent_sandbox.confined.runtime import BubblewrapBackend, ConfinedRuntime, provision_confined

__all__ = [
    "Bind",
    "BubblewrapBackend",
    "ConfinedRuntime",
    "LocalSandboxConfig",
    "provision_confined",
    "require_bubblewrap",
    "require_private_workdir",
]
