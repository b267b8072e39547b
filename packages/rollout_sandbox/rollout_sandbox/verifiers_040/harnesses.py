"""Harnesses of verifiers that only one of the versions has."""

from typing import Any

from verifiers.v1.harness import Harness

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0

if AFTER_0_4_0:
    from verifiers.v1.harnesses import OpenCodeHarness

    OPENCODE_HARNESSES: tuple[type[Harness[Any]], ...] = (OpenCodeHarness,)
else:
    OPENCODE_HARNESSES: tuple[type[Harness[Any]], ...] = ()
"""verifiers' own harness for OpenCode, which 0.4.0 has not."""
