"""Our podman runtime: a container that is started with one command, guarded from outside, and removed with one."""

from rollout_sandbox.podman.runtime import PodmanBackend, PodmanConfig, PodmanRuntime, is_ours, provision_podman

__all__ = ["PodmanBackend", "PodmanConfig", "PodmanRuntime", "is_ours", "provision_podman"]
