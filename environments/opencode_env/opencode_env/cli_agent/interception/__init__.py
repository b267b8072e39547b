"""The path to the model: a gateway for each rollout, and its main and sub-LLM calls told apart by `X-RLM-Role`."""

from opencode_env.cli_agent.interception.callers import (
    DEPTH_HEADER,
    MARK_HEADER,
    ROLE_HEADER,
    SubRollout,
    SubSettings,
    own_calls,
)
from opencode_env.cli_agent.interception.gateway import Gateway, GatewayConfig, ModelRequests
from opencode_env.cli_agent.interception.server import RoleInterceptionServer
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
