"""Agents, and the names that whoever brings one of their own needs.

An agent is a harness of verifiers. The other names are of hooks that it or its configuration may have, and of an
environment of its own. `opencode` is one agent, `named` what is known of others.
The names are imported on first use.
"""

from typing import TYPE_CHECKING

from rollout_sandbox.lazy_names import lazy_names

if TYPE_CHECKING:
    from rollout_sandbox.compat import run_program
    from rollout_sandbox.confined import Bind

    from opencode_env.agents.named.npm import agent_tree, npm_binds
    from opencode_env.agents.opencode import OpenCodeHarness, OpenCodeHarnessConfig
    from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
    from opencode_env.cli_agent.features import Feature
    from opencode_env.cli_agent.guard import GuardedHarness
    from opencode_env.cli_agent.interception.gateway import ModelRequests
    from opencode_env.cli_agent.interception.history import EchoRules
    from opencode_env.cli_agent.process_fence import ProcessFence
    from opencode_env.cli_agent.rollout import Patience
    from opencode_env.cli_agent.seats import local_seat

__all__ = [
    "Bind",
    "CliAgentEnv",
    "CliAgentEnvConfig",
    "EchoRules",
    "Feature",
    "GuardedHarness",
    "ModelRequests",
    "OpenCodeHarness",
    "OpenCodeHarnessConfig",
    "Patience",
    "ProcessFence",
    "agent_tree",
    "local_seat",
    "npm_binds",
    "run_program",
]

_MODULES = {
    "Bind": "rollout_sandbox.confined",
    "CliAgentEnv": "opencode_env.cli_agent.env",
    "CliAgentEnvConfig": "opencode_env.cli_agent.env",
    "EchoRules": "opencode_env.cli_agent.interception.history",
    "Feature": "opencode_env.cli_agent.features",
    "GuardedHarness": "opencode_env.cli_agent.guard",
    "ModelRequests": "opencode_env.cli_agent.interception.gateway",
    "OpenCodeHarness": "opencode_env.agents.opencode",
    "OpenCodeHarnessConfig": "opencode_env.agents.opencode",
    "Patience": "opencode_env.cli_agent.rollout",
    "ProcessFence": "opencode_env.cli_agent.process_fence",
    "agent_tree": "opencode_env.agents.named.npm",
    "local_seat": "opencode_env.cli_agent.seats",
    "npm_binds": "opencode_env.agents.named.npm",
    "run_program": "rollout_sandbox.compat",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
