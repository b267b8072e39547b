"""Where a rollout of the harness alone runs: in the confined local sandbox, or in a container."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import verifiers.v1 as vf
from opencode_env.cli_agent.podman import PodmanBackend, PodmanRuntime, provision_podman
from opencode_env.cli_agent.sandbox import Bind, LocalSandboxConfig, provision_confined
from opencode_env.opencode import OpenCodeHarness
from opencode_rubrics.verifiers_versions import PodmanConfig, own_container, provisioned
from verifiers.v1.runtimes import Runtime, RuntimeConfig, SubprocessConfig


class Place(Protocol):
    """A kind of sandbox."""

    @property
    def runtime(self) -> RuntimeConfig:
        """The seat's runtime configuration."""
        ...

    def box(self, agent: vf.Agent) -> AbstractAsyncContextManager[Runtime]:
        """A live sandbox for one rollout of `agent`."""
        ...


@dataclass(frozen=True)
class Confined:
    """The confined local sandbox, as `CliAgentEnv` provisions it."""

    config: LocalSandboxConfig = field(default_factory=LocalSandboxConfig)
    binds: tuple[Bind, ...] = ()

    @property
    def runtime(self) -> RuntimeConfig:
        return SubprocessConfig()

    @asynccontextmanager
    async def box(self, agent: vf.Agent) -> AsyncIterator[Runtime]:
        harness = agent.harness
        wanted = await harness.local_binds() if isinstance(harness, OpenCodeHarness) else []
        async with provision_confined(self.config, [*wanted, *self.binds]) as box:
            yield box


class _ScriptedRuntime(PodmanRuntime):
    """Says nothing of a way to tell the agent's processes, as verifiers' own container runtimes do."""

    mark_agent_start = None  # type: ignore[assignment]
    end_agent_processes = None  # type: ignore[assignment]


class _ScriptedBackend(PodmanBackend):
    RUNTIME = _ScriptedRuntime


@dataclass(frozen=True)
class Container:
    """A podman container of one image."""

    image: str

    @property
    def runtime(self) -> RuntimeConfig:
        return PodmanConfig(image=self.image)

    @asynccontextmanager
    async def box(self, agent: vf.Agent) -> AsyncIterator[Runtime]:
        async with podman_box(self.image) as box:
            yield box


@dataclass(frozen=True)
class ScriptedContainer(Container):
    """A container in which scripts end what the agent started, as in one of docker's or a remote one."""

    @asynccontextmanager
    async def box(self, agent: vf.Agent) -> AsyncIterator[Runtime]:
        async with provisioned(own_container(_ScriptedBackend, PodmanConfig(image=self.image))) as box:
            yield box


@asynccontextmanager
async def podman_box(image: str) -> AsyncIterator[Runtime]:
    """A podman container of one image, without an agent."""
    async with provision_podman(PodmanConfig(image=image)) as box:
        yield box
