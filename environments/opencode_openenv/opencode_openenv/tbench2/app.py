"""The server of Terminal-Bench 2 tasks: OpenEnv's application over one environment for each session.

`app` is that server as an ASGI application, which `openenv.yaml` names.
"""

from contextlib import AsyncExitStack

from openenv.core.env_server import ConcurrencyConfig, create_fastapi_app

from opencode_openenv.guard import Application, GuardedApplication
from opencode_openenv.serving import ServerApplication, naming_wrong_use, required_token, serve_application
from opencode_openenv.tbench2.environment import Tbench2Environment
from opencode_openenv.tbench2.models import Tbench2Action, Tbench2Observation
from opencode_openenv.tbench2.settings import Tbench2ServerConfig, most_sessions, read_settings


def application_of(config: Tbench2ServerConfig) -> Application:
    """OpenEnv's application, without a guard; a `ValueError` where a setting means nothing or a token is needed."""
    place = read_settings().place
    config.require_agents_out_of_reach(place.runtime, place.sandbox)
    # Sessions that are made over HTTP end with nothing but a message, and places are few.
    sessions = ConcurrencyConfig(max_concurrent_envs=most_sessions(), session_timeout=14_400.0)
    application = create_fastapi_app(
        Tbench2Environment, Tbench2Action, Tbench2Observation, env_name="tbench2_env", concurrency_config=sessions
    )
    return naming_wrong_use(application)


async def serve(config: Tbench2ServerConfig) -> None:
    """Serve until SIGINT or SIGTERM."""
    await serve_application("tbench2_env", application_of(config), config, _nothing)


async def _nothing() -> None:
    """Sessions end with their connections, and their sandboxes with them."""


async def _started(resources: AsyncExitStack) -> GuardedApplication:
    """Sessions end with their connections, so it holds nothing."""
    config = Tbench2ServerConfig()
    return GuardedApplication(application_of(config), required_token(config), config.MAX_REQUEST_BYTES)


app = ServerApplication(_started)
