"""Terminal-Bench 2 as a step environment of OpenEnv: a task's sandbox, driven action by action, and scored.

The classes are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opencode_openenv.tbench2.client import Tbench2Env
    from opencode_openenv.tbench2.environment import Tbench2Environment
    from opencode_openenv.tbench2.models import Tbench2Action, Tbench2Observation, Tbench2State

__all__ = ["Tbench2Action", "Tbench2Env", "Tbench2Environment", "Tbench2Observation", "Tbench2State"]

_MODULES = {
    "Tbench2Env": "client",
    "Tbench2Environment": "environment",
    "Tbench2Action": "models",
    "Tbench2Observation": "models",
    "Tbench2State": "models",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"opencode_openenv.tbench2.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """The public names too, for `help` and completion."""
    return sorted({*globals(), *__all__})
