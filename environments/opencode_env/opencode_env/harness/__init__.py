"""The OpenCode harness: install, configuration, run, outcome."""

from opencode_env.harness.config import OpenCodeHarnessConfig
from opencode_env.harness.harness import OpenCodeHarness

__all__ = ["OpenCodeHarness", "OpenCodeHarnessConfig"]
