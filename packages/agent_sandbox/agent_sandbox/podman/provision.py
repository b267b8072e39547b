"""Provisioning our podman runtime as verifiers provisions its own."""

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

from typing_extensions import TypeIs
from verifiers.v1.runtimes import RuntimeConfig

from agent_sandbox.confined import Bind
from agent_sandbox.podman.backend import PodmanBackend
from agent_sandbox.podman.runtime import PodmanRuntime
from agent_sandbox.verifiers_versions import PodmanConfig, own_container, provisioned


def is_ours(config: RuntimeConfig) -> TypeIs[PodmanConfig]:
    """Whether this configuration is for our runtime: podman on Linux, with the whole network or none for the agent.

    Filtering it by name takes the runtime that verifiers 0.4.0 has, with its proxy and its image of network tools.
    """
    if not isinstance(config, PodmanConfig) or sys.platform != "linux":
        return False
    return not config.network_restricted or not config.allow


@contextlib.asynccontextmanager
async def provision_podman(
    config: PodmanConfig, binds: Sequence[Bind] = (), env: Mapping[str, str] | None = None
) -> AsyncIterator[PodmanRuntime]:
    """Start a container and remove it on exit, whatever happens.

    Args:
        config: the seat's, resolved for the task.
        binds: host files and directories that are shown inside, read-only.
        env: environment variables of every command.

    Raises:
        SandboxError: the container could not be started.
    """
    runtime = own_container(PodmanBackend, config)
    assert isinstance(runtime, PodmanRuntime)
    runtime.show(tuple(binds))
    async with provisioned(runtime, env) as box:
        yield box
