"""Serves an environment by `RoleInterceptionServer`s, whatever `--env.interception` says.

verifiers builds its servers inside `make_interception` and its pools, with no way in: an `Env.make_interception` to
override would end the pools here, and `CliAgentEnv._served`.
"""

import logging
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from verifiers.v1.interception import (
    ElasticInterceptionPool,
    ElasticInterceptionPoolConfig,
    Interception,
    InterceptionConfig,
    InterceptionServer,
    InterceptionServerConfig,
    StaticInterceptionPool,
    StaticInterceptionPoolConfig,
)
from verifiers.v1.interception.base import Slot
from verifiers.v1.interception.tunnel import PrimeTunnelConfig
from verifiers.v1.session import RolloutSession

from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.cli_agent.interception.server import OnCall, RoleInterceptionServer
from opencode_env.cli_agent.rollout import rollout_of

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")

role_server = partial(RoleInterceptionServer, rollout_of=rollout_of)
"""Makes a server that finds the state of its rollouts by their traces."""


def _is_reachable(server: InterceptionServer) -> bool:
    """Whether a sandbox can reach the server, as far as is known."""
    watched = getattr(server, "watched", None)
    return watched is None or watched.present is not None


class RoleStaticPool(StaticInterceptionPool):
    """A fixed set of role servers."""

    def __init__(self, config: StaticInterceptionPoolConfig, *options: Any, **ours: Any) -> None:
        super().__init__(config, *options)
        self.servers = [role_server(server, *options, **ours) for server in config.servers]

    @asynccontextmanager
    async def acquire(self, session: RolloutSession) -> AsyncIterator[Slot]:
        """A slot for one rollout, on a server that can be reached where there is one."""
        server = min(self.servers, key=lambda server: (not _is_reachable(server), server.load))
        async with server.acquire(session) as slot:
            yield slot


class RoleElasticPool(ElasticInterceptionPool):
    """Role servers on demand, `multiplex` rollouts on each."""

    def __init__(self, *options: Any, **ours: Any) -> None:
        super().__init__(*options)
        self._ours = ours

    async def _server(self) -> InterceptionServer:
        for server in self.servers:
            if server.load < self.config.multiplex and _is_reachable(server):
                return server
        config = InterceptionServerConfig(tunnel=PrimeTunnelConfig())
        grown = role_server(config, self.requires_tunnel, self.state_service_secrets, **self._ours)
        await self.stack.enter_async_context(grown)
        self.servers.append(grown)
        return grown

    @asynccontextmanager
    async def acquire(self, session: RolloutSession) -> AsyncIterator[Slot]:
        """A slot for one rollout; leaving it ends the rollout's sub calls first."""
        async with super().acquire(session) as slot, rollout_of(session.trace).ending_sub_calls():
            yield slot


def role_interception(
    config: InterceptionConfig,
    requires_tunnel: bool = False,
    state_service_secrets: tuple[str, ...] = (),
    gateway: GatewayConfig | None = None,
    on_call: OnCall | None = None,
) -> Interception:
    """The interception of a configuration, made of role servers, which hand each recorded call to `on_call`."""
    options = (requires_tunnel, state_service_secrets)
    ours: dict[str, Any] = {"gateway": gateway, "on_call": on_call}
    if isinstance(config, InterceptionServerConfig):
        return role_server(config, *options, **ours)
    if isinstance(config, StaticInterceptionPoolConfig):
        return RoleStaticPool(config, *options, **ours)
    assert isinstance(config, ElasticInterceptionPoolConfig)
    return RoleElasticPool(config, *options, **ours)


def raise_open_files() -> None:
    """Raise the soft limit of open files, which is a desktop program's, to the hard one, for this process and those it
    starts; harmless when it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("at most %d open files (%s): raise it with `ulimit -n`", soft, error)
