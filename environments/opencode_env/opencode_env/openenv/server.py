"""The server: OpenEnv's application over the rollout service, from its start to an end that leaves nothing."""

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import sys
import warnings
from collections.abc import Iterator

import uvicorn
from openenv.core.env_server import ConcurrencyConfig, create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

from opencode_env.openenv.engine import Engine
from opencode_env.openenv.environment import OpenCodeEnvironment
from opencode_env.openenv.guard import GuardedApplication
from opencode_env.openenv.service import RolloutService
from opencode_env.openenv.settings import ServerConfig

logger = logging.getLogger("verifiers.v1.opencode_env.openenv")

_SESSIONS = 1024
"""Sessions at once. One that runs no rollout costs a thread and little else."""
_ANSWER_SECONDS = 3.0


class _Server(uvicorn.Server):
    """Ends its rollouts before it closes its connections, so that each caller hears of it."""

    def __init__(self, config: uvicorn.Config, service: RolloutService, guarded: GuardedApplication) -> None:
        super().__init__(config)
        self._service = service
        self._guarded = guarded

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM; uvicorn's own would raise them again before the sandboxes are gone."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets)
        for server in self.servers:
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                logger.info("run_rollout is served at http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        await self._service.stop()
        await self._guarded.answered(_ANSWER_SECONDS)
        await super().shutdown(sockets)


async def serve(config: ServerConfig) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        SandboxError: the confined local sandbox is asked for and does not work here.
        SystemExit: the address cannot be listened at.
    """
    # OpenEnv 0.4.1 reads fields by the names that they had before MCP's SDK 2.
    warnings.filterwarnings("ignore", message="Accessing `.*` is deprecated; MCP SDK v2 renamed")
    token = config.token()
    if token is None and not config.is_loopback:
        logger.warning(
            "listening at %s without a token: whoever reaches it runs shell commands on your keys (--token-file)",
            config.host,
        )
    async with Engine(config.environment()).open() as engine:
        service = RolloutService(engine, config)
        application = create_app(
            functools.partial(OpenCodeEnvironment, service),
            CallToolAction,
            CallToolObservation,
            env_name="opencode_env",
            # Sessions that OpenEnv 0.10's clients make over HTTP end with nothing but a message.
            concurrency_config=ConcurrencyConfig(max_concurrent_envs=_SESSIONS, session_timeout=config.idle_session_s),
        )
        guarded = GuardedApplication(application, token, config.max_request_bytes)
        settings = uvicorn.Config(
            guarded,
            host=config.host,
            port=config.port,
            log_level="warning",
            ws_max_size=config.max_request_bytes,
            timeout_graceful_shutdown=int(config.shutdown_s),
        )
        await _Server(settings, service, guarded).serve()


def log_to_stderr() -> None:
    """Write what the server and its rollouts say to standard error, with the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger("verifiers.v1")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)  # shows a caller's wrong argument as a failure of ours
