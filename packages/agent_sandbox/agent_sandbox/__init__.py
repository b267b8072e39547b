"""Sandboxes for agents, as verifiers runtimes: confined with bubblewrap, in a podman container, and owned at Prime.

Whatever is asked of a sandbox raises a `SandboxError` when that is gone; docstrings name other errors.

The classes are imported on first use: what stands beside them works without verifiers, which takes seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_sandbox.confined.backend import ConfinedBackend
    from agent_sandbox.podman import PodmanBackend
    from agent_sandbox.prime.backend import OwnedPrimeBackend

__all__ = ["ConfinedBackend", "OwnedPrimeBackend", "PodmanBackend"]

_MODULES = {
    "ConfinedBackend": "agent_sandbox.confined.backend",
    "OwnedPrimeBackend": "agent_sandbox.prime.backend",
    "PodmanBackend": "agent_sandbox.podman",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names too, for `help` and completion."""
    return sorted({*globals(), *__all__})
