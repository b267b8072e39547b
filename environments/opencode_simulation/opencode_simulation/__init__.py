"""Simulated tools: seeded worlds that an agent plays through an MCP server, with their rewards out of its reach.

The names are imported on first use: a world's own module then starts without verifiers, which takes seconds.
"""

from typing import TYPE_CHECKING

from agent_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from opencode_env.opencode.env import OpenCodeEnv

    from opencode_simulation.environment_world import EnvironmentWorld
    from opencode_simulation.errors import InvalidAction, SignatureMismatchError, ToolMismatchError, WorldError
    from opencode_simulation.parity import check_parity
    from opencode_simulation.taskset import SimulationTaskset
    from opencode_simulation.trajectory import Trajectory, trajectory_of
    from opencode_simulation.world import Step, World, resource, tool

__all__ = [
    "EnvironmentWorld",
    "InvalidAction",
    "OpenCodeEnv",
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
    "EnvironmentWorld": "opencode_simulation.environment_world",
    "OpenCodeEnv": "opencode_env.opencode.env",
    "InvalidAction": "opencode_simulation.errors",
    "SignatureMismatchError": "opencode_simulation.errors",
    "SimulationTaskset": "opencode_simulation.taskset",
    "Step": "opencode_simulation.world",
    "ToolMismatchError": "opencode_simulation.errors",
    "World": "opencode_simulation.world",
    "WorldError": "opencode_simulation.errors",
    "Trajectory": "opencode_simulation.trajectory",
    "check_parity": "opencode_simulation.parity",
    "resource": "opencode_simulation.world",
    "tool": "opencode_simulation.world",
    "trajectory_of": "opencode_simulation.trajectory",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
