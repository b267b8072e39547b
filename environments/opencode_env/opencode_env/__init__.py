"""OpenCode as a verifiers environment: harness, environment and taskset under one plugin id, `opencode-env`.

The classes are imported on first use: the scripted model and the commands of this package then start without
verifiers, which takes seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opencode_env.cli_agent.outcomes import AgentError as AgentError
    from opencode_env.opencode import OpenCodeHarness
    from opencode_env.opencode.env import OpenCodeEnv
    from opencode_env.taskset import OpenCodeTaskset

__all__ = ["OpenCodeEnv", "OpenCodeHarness", "OpenCodeTaskset"]

_MODULES = {
    "AgentError": "opencode_env.cli_agent.outcomes",
    "PodmanBackend": "agent_sandbox.podman",
    "OpenCodeEnv": "opencode_env.opencode.env",
    "OpenCodeHarness": "opencode_env.opencode",
    "OpenCodeTaskset": "opencode_env.taskset",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names too, for `help` and completion."""
    return sorted({*globals(), *__all__})
