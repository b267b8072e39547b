"""The path to the model: a gateway for each rollout, and its main and sub-LLM calls told apart by `X-RLM-Role`."""

from opencode_env.cli_agent.interception.gateway import Gateway, GatewayConfig
from opencode_env.cli_agent.interception.own_calls import MARK_HEADER, own_calls
from opencode_env.cli_agent.interception.request_rules import ModelRequests
from opencode_env.cli_agent.interception.server import RoleInterceptionServer
from opencode_env.cli_agent.interception.sub_rollout import DEPTH_HEADER, ROLE_HEADER, SubRollout, SubSettings
from opencode_env.cli_agent.interception.training_client import reads_images

__all__ = [
    "DEPTH_HEADER",
    "MARK_HEADER",
    "ROLE_HEADER",
    "Gateway",
    "GatewayConfig",
    "ModelRequests",
    "RoleInterceptionServer",
    "SubRollout",
    "SubSettings",
    "own_calls",
    "reads_images",
]
