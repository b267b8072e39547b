"""Recursive OpenCode as a verifiers environment, under the plugin id `opencode-rlm`.

The agent calls language models from inside its work; its own calls and the sub-LLM calls are told apart by the header
`X-RLM-Role`, served side by side, measured apart and trainable apart. The classes are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opencode_rlm.env import OpenCodeRLMEnv
    from opencode_rlm.session import OpenCodeRLMHarness
    from opencode_rlm.taskset import NeedleTaskset

__all__ = ["NeedleTaskset", "OpenCodeRLMEnv", "OpenCodeRLMHarness"]

_MODULES = {
    "NeedleTaskset": "opencode_rlm.taskset",
    "OpenCodeRLMEnv": "opencode_rlm.env",
    "OpenCodeRLMHarness": "opencode_rlm.session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names too, for `help` and completion."""
    return sorted({*globals(), *__all__})
