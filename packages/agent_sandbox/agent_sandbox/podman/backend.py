"""What `--env.agent.runtime.type custom --env.agent.runtime.import-path agent_sandbox.PodmanBackend` names."""

from agent_sandbox.podman.runtime import PodmanRuntime
from agent_sandbox.verifiers_versions import ContainerBackend, PodmanConfig


class PodmanBackend(ContainerBackend):
    """Our podman runtime, for verifiers after 0.4.0; 0.4.0 has `--env.agent.runtime.type podman` instead."""

    RUNTIME = PodmanRuntime
    config_class = PodmanConfig
