"""OpenEnv: `run_rollout` for trainers that speak its protocol, served by the engine that `vf-eval` runs.

The classes are imported on first use: the server's, which take seconds, are then no part of a client.
"""

from typing import TYPE_CHECKING

from rollout_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from opencode_openenv.client import OpenCodeEnv
    from opencode_openenv.result import CommandResult, FlatSequence, RolloutResult, RolloutTurn, flat_sequence
    from opencode_openenv.training_trace import TrainingTrace, TrainingTurn

__all__ = [
    "CommandResult",
    "FlatSequence",
    "OpenCodeEnv",
    "RolloutResult",
    "RolloutTurn",
    "TrainingTrace",
    "TrainingTurn",
    "flat_sequence",
]

_MODULES = {
    "OpenCodeEnv": "opencode_openenv.client",
    **dict.fromkeys(
        ("CommandResult", "FlatSequence", "RolloutResult", "RolloutTurn", "flat_sequence"), "opencode_openenv.result"
    ),
    **dict.fromkeys(("TrainingTrace", "TrainingTurn"), "opencode_openenv.training_trace"),
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
