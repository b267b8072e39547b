"""What `--env.agent.runtime.type custom --env.agent.runtime.import-path opencode_env.PodmanBackend` names."""

from opencode_rubrics.verifiers_versions import ContainerBackend, PodmanConfig

from opencode_env.cli_agent.podman.runtime import PodmanRuntime


class PodmanBackend(ContainerBackend):
    """Our podman runtime, for verifiers after 0.4.0; 0.4.0 has `--env.agent.runtime.type podman` instead."""

    RUNTIME = PodmanRuntime
    config_class = PodmanConfig
