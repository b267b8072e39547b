"""Where a rollout of the harness alone runs: in the confined local sandbox, or in a container."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import verifiers.v1 as vf
from opencode_env.cli_agent.sandbox import Bind, LocalSandboxConfig, provision_confined
from opencode_env.opencode import OpenCodeHarness
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import Runtime, RuntimeConfig, SubprocessConfig, provision_runtime


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


@dataclass(frozen=True)
class Container:
    """A podman container of one image."""

    image: str

    @property
    def runtime(self) -> RuntimeConfig:
        return vf.PodmanConfig(image=self.image)

    @asynccontextmanager
    async def box(self, agent: vf.Agent) -> AsyncIterator[Runtime]:
        async with AsyncExitStack() as stack:
            box = await _provisioned(stack, agent.provision)
            try:
                yield box
            finally:
                # verifiers stamps the box of a borrowed run, and its container runtimes then never remove it.
                box.info.borrowed = False


@asynccontextmanager
async def podman_box(image: str) -> AsyncIterator[Runtime]:
    """A podman container of one image, without an agent."""
    async with AsyncExitStack() as stack:
        yield await _provisioned(stack, lambda: provision_runtime(vf.PodmanConfig(image=image)))


async def _provisioned(stack: AsyncExitStack, box: Callable[[], AbstractAsyncContextManager[Runtime]]) -> Runtime:
    """A started container. podman picks a free port first and takes it later; something else may be faster."""
    for _ in range(3):
        try:
            return await stack.enter_async_context(box())
        except SandboxError as error:
            if "address already in use" not in str(error):
                raise
            last = error
    raise last
