"""Terminal-Bench 2 as a step environment of OpenEnv: a task's sandbox, driven action by action, and scored.

The classes are imported on first use.
"""

from typing import TYPE_CHECKING

from rollout_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from opencode_openenv.tbench2.client import Tbench2Env
    from opencode_openenv.tbench2.environment import Tbench2Environment
    from opencode_openenv.tbench2.models import Tbench2Action, Tbench2Observation, Tbench2State

__all__ = ["Tbench2Action", "Tbench2Env", "Tbench2Environment", "Tbench2Observation", "Tbench2State"]

_MODULES = {
    "Tbench2Env": "opencode_openenv.tbench2.client",
    "Tbench2Environment": "opencode_openenv.tbench2.environment",
    **dict.fromkeys(("Tbench2Action", "Tbench2Observation", "Tbench2State"), "opencode_openenv.tbench2.models"),
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
