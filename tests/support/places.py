"""Where a rollout of the harness alone runs: in the confined local sandbox, in a container, or in a Prime sandbox."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarness
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from rollout_sandbox.podman import PodmanConfig, PodmanRuntime
from rollout_sandbox.prime import provision_prime
from rollout_sandbox.provisioning import provisioned
from verifiers.v1.interception import Interception, InterceptionServer, InterceptionServerConfig
from verifiers.v1.interception.tunnel import CustomTunnelConfig
from verifiers.v1.runtimes import PrimeConfig, Runtime, RuntimeConfig, SubprocessConfig

from tests.support.lent_containers import LentBackend, QuickBackend
from tests.support.user_home import closed_port


class Place(Protocol):
    """A kind of sandbox."""

    @property
    def runtime(self) -> RuntimeConfig:
        """The seat's runtime configuration."""
        ...

    def box(self, agent: vf.Agent) -> AbstractAsyncContextManager[Runtime]:
        """A live sandbox for one rollout of `agent`."""
        ...

    def interception(self) -> AbstractAsyncContextManager[Interception | None]:
        """What serves the model calls of rollouts in it; None = verifiers' own server of each rollout."""
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

    def interception(self) -> AbstractAsyncContextManager[Interception | None]:
        return nullcontext()


def with_program(directory: Path, program: str) -> Confined:
    """A sandbox in which a program takes OpenCode's place, in a directory that holds the others."""
    (directory / "opencode").write_text(program)
    (directory / "opencode").chmod(0o755)
    return Confined(binds=(Bind(directory, "/opencode"),))


class _ScriptedRuntime(PodmanRuntime):
    """Says nothing of a way to tell the agent's processes, as verifiers' own container runtimes do."""

    can_end_agent = False


class _ScriptedBackend(LentBackend):
    def bind(self, *, env: Mapping[str, str] | None = None) -> _ScriptedRuntime:
        return _ScriptedRuntime(self, env=self.env if env is None else env)


@dataclass(frozen=True)
class Container:
    """A podman container of one image."""

    image: str

    @property
    def runtime(self) -> RuntimeConfig:
        return PodmanConfig(image=self.image)

    def box(self, agent: vf.Agent) -> AbstractAsyncContextManager[Runtime]:
        return podman_box(self.image)

    def interception(self) -> AbstractAsyncContextManager[Interception | None]:
        return nullcontext()


@dataclass(frozen=True)
class ScriptedContainer(Container):
    """A container in which scripts end what the agent started, as in one of docker's or a remote one."""

    def box(self, agent: vf.Agent) -> AbstractAsyncContextManager[Runtime]:
        return podman_box(self.image, _ScriptedBackend)


@dataclass(frozen=True)
class Prime:
    """A sandbox of the local server that speaks Prime's API (the fixture `prime_api`); its docstring says what of a
    real one it is not. It reaches the interception at an own URL."""

    image: str = "bare"

    @property
    def runtime(self) -> RuntimeConfig:
        return PrimeConfig(image=self.image)

    def box(self, agent: vf.Agent) -> AbstractAsyncContextManager[Runtime]:
        return prime_box(self.image)

    def interception(self) -> AbstractAsyncContextManager[Interception | None]:
        return InterceptionServer(InterceptionServerConfig(tunnel=own_url()), requires_tunnel=True)


def own_url() -> CustomTunnelConfig:
    """An URL of the interception that sandboxes of this machine reach."""
    port = closed_port()
    return CustomTunnelConfig(url=f"http://127.0.0.1:{port}", port=port)


def options_of(tunnel: CustomTunnelConfig) -> list[str]:
    """Arguments of `vf-eval` for the interception at that URL."""
    fields = tunnel.model_dump(include={"type", "url", "port"}, exclude_none=True)
    named = [word for name, value in fields.items() for word in (f"--env.interception.tunnel.{name}", str(value))]
    return ["--env.interception.type", "server", *named]


@asynccontextmanager
async def prime_box(image: str) -> AsyncIterator[Runtime]:
    """A Prime sandbox of one image, without an agent."""
    async with provision_prime(PrimeConfig(image=image), lifetime=60) as box:
        yield box


@asynccontextmanager
async def podman_box(image: str, kind: type[LentBackend] = QuickBackend) -> AsyncIterator[PodmanRuntime]:
    """A podman container of one image, without an agent; others may have had it before."""
    async with provisioned(kind(PodmanConfig(image=image))) as box:
        yield box
