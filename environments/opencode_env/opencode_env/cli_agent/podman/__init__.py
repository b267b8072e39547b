"""Our podman runtime: a container that is started with one command, guarded from outside, and removed with one."""

from opencode_env.cli_agent.podman.backend import PodmanBackend
from opencode_env.cli_agent.podman.provision import is_ours, provision_podman
from opencode_env.cli_agent.podman.runtime import PodmanRuntime

__all__ = ["PodmanBackend", "PodmanRuntime", "is_ours", "provision_podman"]
