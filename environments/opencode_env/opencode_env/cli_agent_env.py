"""The old place of `CliAgentEnv`, kept for those who import it from here."""

from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig

__all__ = ["CliAgentEnv", "CliAgentEnvConfig"]
