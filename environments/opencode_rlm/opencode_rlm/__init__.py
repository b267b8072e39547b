"""Recursive OpenCode as a verifiers environment, under the plugin id `opencode-rlm`.

The agent calls language models from inside its work; its own calls and the sub-LLM calls are told apart by the header
`X-RLM-Role`, served side by side, measured apart and trainable apart. The classes are imported on first use.
"""

from typing import TYPE_CHECKING

from rollout_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from opencode_rlm.env import NeedleTaskset, OpenCodeRLMEnv, OpenCodeRLMHarness

__all__ = ["NeedleTaskset", "OpenCodeRLMEnv", "OpenCodeRLMHarness"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "opencode_rlm.env"))
