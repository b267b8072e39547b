"""The OpenCode harness: install, configuration, run, outcome."""

from opencode_env.agents.opencode.harness import OpenCodeHarness
from opencode_env.agents.opencode.harness_config import OpenCodeHarnessConfig

__all__ = ["OpenCodeHarness", "OpenCodeHarnessConfig"]
