"""`app`: the server of `run_rollout` as an ASGI application, for those who listen by a program of their own.

OpenEnv's providers do so with what `openenv.yaml` names.
"""

from contextlib import AsyncExitStack

from opencode_openenv.asgi import ServerApplication, required_token
from opencode_openenv.engine import Engine
from opencode_openenv.guard import GuardedApplication
from opencode_openenv.server import application_of
from opencode_openenv.service import RolloutService
from opencode_openenv.settings import ServerConfig


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
