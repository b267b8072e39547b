"""The OpenCode coding agent: `harness` is read from top to bottom, `config` has its options."""

from opencode_env.agents.opencode.config import OpenCodeHarnessConfig
from opencode_env.agents.opencode.harness import OpenCodeHarness

__all__ = ["OpenCodeHarness", "OpenCodeHarnessConfig"]
