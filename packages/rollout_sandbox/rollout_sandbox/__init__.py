"""Sandboxes for agents, as verifiers runtimes: confined with bubblewrap, in a podman container, and owned at Prime.

What is asked of a sandbox that is gone, was never started or cannot do it raises a `SandboxError`; docstrings name
other errors, and reasons that nobody would expect.

The classes are imported on first use: what stands beside them works without verifiers, which takes seconds to import.
"""

from typing import TYPE_CHECKING

from rollout_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from rollout_sandbox.confined.runtime import ConfinedBackend
    from rollout_sandbox.podman import PodmanBackend
    from rollout_sandbox.prime.runtime import OwnedPrimeBackend

__all__ = ["ConfinedBackend", "OwnedPrimeBackend", "PodmanBackend"]

_MODULES = {
    "ConfinedBackend": "rollout_sandbox.confined.runtime",
    "OwnedPrimeBackend": "rollout_sandbox.prime.runtime",
    "PodmanBackend": "rollout_sandbox.podman",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
