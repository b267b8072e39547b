"""Our podman runtime: a container that is started with one command, guarded from outside, and removed with one."""

from agent_sandbox.podman.backend import PodmanBackend
from agent_sandbox.podman.provision import is_ours, provision_podman
from agent_sandbox.podman.runtime import PodmanRuntime

__all__ = ["PodmanBackend", "PodmanRuntime", "is_ours", "provision_podman"]
