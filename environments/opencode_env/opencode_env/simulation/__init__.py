"""Simulated tools: seeded worlds that an agent plays through an MCP server, with their rewards out of its reach.

The names are imported on first use: a world's own module then starts without verifiers, which takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opencode_env.simulation.environment_world import EnvironmentWorld
    from opencode_env.simulation.errors import InvalidAction, SignatureMismatchError, ToolMismatchError, WorldError
    from opencode_env.simulation.parity import check_parity
    from opencode_env.simulation.taskset import SimulationTaskset
    from opencode_env.simulation.trajectory import Trajectory, trajectory_of
    from opencode_env.simulation.world import Step, World, resource, tool

__all__ = [
    "EnvironmentWorld",
    "InvalidAction",
    "SignatureMismatchError",
    "SimulationTaskset",
    "Step",
    "ToolMismatchError",
    "Trajectory",
    "World",
    "WorldError",
    "check_parity",
    "resource",
    "tool",
    "trajectory_of",
]

_MODULES = {
    "EnvironmentWorld": "opencode_env.simulation.environment_world",
    "InvalidAction": "opencode_env.simulation.errors",
    "SignatureMismatchError": "opencode_env.simulation.errors",
    "SimulationTaskset": "opencode_env.simulation.taskset",
    "Step": "opencode_env.simulation.world",
    "ToolMismatchError": "opencode_env.simulation.errors",
    "World": "opencode_env.simulation.world",
    "WorldError": "opencode_env.simulation.errors",
    "Trajectory": "opencode_env.simulation.trajectory",
    "check_parity": "opencode_env.simulation.parity",
    "resource": "opencode_env.simulation.world",
    "tool": "opencode_env.simulation.world",
    "trajectory_of": "opencode_env.simulation.trajectory",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names too, for `help` and completion."""
    return sorted({*globals(), *__all__})
