"""Does another CLI agent keep the promises of `CliAgentEnv`? `python -m opencode_env.conformance --harness ID` tells.

The suite runs the real `vf-eval` with the agent, the scripted model and the confined sandbox on small tasks of its own.
What the scripted model must say so that the agent runs a shell command is a `Dialect`: derived from the tools that the
agent offers, or given by the agent's author. Needs pytest (`pip install 'opencode-env[conformance]'`).
"""

from opencode_env.conformance.dialect import Dialect, SubmittingDialect, ToolDialect

__all__ = ["Dialect", "SubmittingDialect", "ToolDialect"]
