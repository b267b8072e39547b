"""OpenEnv: `run_rollout` for trainers that speak its protocol, served by the engine that `vf-eval` runs.

The classes are imported on first use: the server's, which take seconds, are then no part of a client.
"""

from typing import TYPE_CHECKING

from rollout_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from opencode_openenv.client import OpenCodeEnvClient
    from opencode_openenv.result import (
        FlatSequence,
        RolloutCommand,
        RolloutResult,
        RolloutTurn,
        TrainingTrace,
        TrainingTurn,
        flat_sequence,
    )

__all__ = [
    "FlatSequence",
    "OpenCodeEnvClient",
    "RolloutCommand",
    "RolloutResult",
    "RolloutTurn",
    "TrainingTrace",
    "TrainingTurn",
    "flat_sequence",
]

_MODULES = {**dict.fromkeys(__all__, "opencode_openenv.result"), "OpenCodeEnvClient": "opencode_openenv.client"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
