"""Simulated tools: seeded worlds that an agent plays through an MCP server, with their rewards out of its reach.

The names are imported on first use: a world's own module then starts without verifiers, which takes seconds.
"""

from typing import TYPE_CHECKING

from rollout_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from opencode_env.agents.opencode.env import OpenCodeEnv

    from opencode_simulation.errors import InvalidAction, SignatureMismatchError, ToolMismatchError, WorldError
    from opencode_simulation.eval_protocol import EnvironmentWorld, Trajectory, trajectory_of
    from opencode_simulation.parity import check_parity
    from opencode_simulation.taskset import SimulationTaskset
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
    "OpenCodeEnv": "opencode_env.agents.opencode.env",
    "SimulationTaskset": "opencode_simulation.taskset",
    "check_parity": "opencode_simulation.parity",
    **dict.fromkeys(("EnvironmentWorld", "Trajectory", "trajectory_of"), "opencode_simulation.eval_protocol"),
    **dict.fromkeys(("Step", "World", "resource", "tool"), "opencode_simulation.world"),
    **dict.fromkeys(
        ("InvalidAction", "SignatureMismatchError", "ToolMismatchError", "WorldError"), "opencode_simulation.errors"
    ),
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
