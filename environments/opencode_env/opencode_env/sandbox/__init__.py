"""The confined local sandbox: a verifiers runtime in which one rollout runs under bubblewrap."""

from .bubblewrap import require_bubblewrap
from .config import Bind, LocalSandboxConfig
from .provision import provision_confined
from .runtime import ConfinedRuntime

__all__ = ["Bind", "ConfinedRuntime", "LocalSandboxConfig", "provision_confined", "require_bubblewrap"]
