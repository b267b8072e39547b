"""The server of `run_rollout`: OpenEnv's application over the rollout service.

`app` is that server as an ASGI application, for those who listen by a program of their own. OpenEnv's providers do so
with what `openenv.yaml` names.
"""

import functools
import warnings
from contextlib import AsyncExitStack

from openenv.core.env_server import ConcurrencyConfig, create_fastapi_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

from opencode_openenv.engine import Engine
from opencode_openenv.environment import OpenCodeEnvironment
from opencode_openenv.guard import Application, GuardedApplication
from opencode_openenv.service import RolloutService
from opencode_openenv.serving import ServerApplication, required_token, serve_application
from opencode_openenv.settings import ServerConfig

_SESSIONS = 1024
"""Sessions at once. One that runs no rollout costs a thread and little else."""


def application_of(service: RolloutService, config: ServerConfig) -> Application:
    """OpenEnv's application, without a guard."""
    # OpenEnv 0.4.1 reads fields by the names that they had before MCP's SDK 2.
    warnings.filterwarnings("ignore", message="Accessing `.*` is deprecated; MCP SDK v2 renamed")
    # Not `create_app`: it adds pages where ENABLE_WEB_INTERFACE says so, and pages are not served here.
    application: Application = create_fastapi_app(
        functools.partial(OpenCodeEnvironment, service),
        CallToolAction,
        CallToolObservation,
        env_name="opencode_env",
        # Sessions that OpenEnv 0.10's clients make over HTTP end with nothing but a message.
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=_SESSIONS, session_timeout=config.idle_session_s),
    )
    return application


async def serve(config: ServerConfig) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        SandboxError: the confined local sandbox is asked for and does not work here.
        SystemExit: the address cannot be listened at.
    """
    async with Engine(config.environment()).open() as engine:
        service = RolloutService(engine, config)
        await serve_application("run_rollout", application_of(service, config), config, service.stop)


async def _started(resources: AsyncExitStack) -> GuardedApplication:
    """The application, with the options' defaults; its engine is open as long as the resources.

    Raises:
        SandboxError: the confined local sandbox does not work here.
        ValueError: there is no token.
    """
    config = ServerConfig()
    token = required_token(config)
    engine = await resources.enter_async_context(Engine(config.environment()).open())
    service = RolloutService(engine, config)
    resources.push_async_callback(service.stop)
    return GuardedApplication(application_of(service, config), token, config.max_request_bytes)


app = ServerApplication(_started)
