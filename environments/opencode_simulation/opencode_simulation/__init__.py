"""Simulated tools as a verifiers environment, under the plugin id `opencode-simulation`.

Everything is in `opencode_env.simulation`; here is only what makes `vf-eval opencode-simulation` find it. The classes
are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opencode_env.opencode.env import OpenCodeEnv
    from opencode_env.simulation.taskset import SimulationTaskset

__all__ = ["OpenCodeEnv", "SimulationTaskset"]

_MODULES = {
    "OpenCodeEnv": "opencode_env.opencode.env",
    "SimulationTaskset": "opencode_env.simulation.taskset",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names too, for `help` and completion."""
    return sorted({*globals(), *__all__})
