"""`app`: the server of Terminal-Bench 2 tasks as an ASGI application, which `openenv.yaml` names."""

from contextlib import AsyncExitStack

from opencode_openenv.asgi import ServerApplication, required_token
from opencode_openenv.guard import GuardedApplication
from opencode_openenv.tbench2.server import application_of
from opencode_openenv.tbench2.settings import Tbench2ServerConfig


async def _started(resources: AsyncExitStack) -> GuardedApplication:
    """The application, with the options' defaults. Sessions end with their connections, so it holds nothing.

    Raises:
        ValueError: there is no token, or a setting means nothing.
    """
    config = Tbench2ServerConfig()
    return GuardedApplication(application_of(config), required_token(config), config.max_request_bytes)


app = ServerApplication(_started)
