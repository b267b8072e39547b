"""The server of Terminal-Bench 2 tasks: OpenEnv's application over one environment for each session.

`app` is also an ASGI application, which `openenv.yaml` names.
"""

from contextlib import AsyncExitStack

from fastapi import FastAPI
from openenv.core.env_server import ConcurrencyConfig, create_fastapi_app
from rollout_sandbox.confined import LocalSandboxConfig

from opencode_openenv.openenv_server import OpenEnvServer
from opencode_openenv.tbench2.environment import Tbench2Environment
from opencode_openenv.tbench2.models import Tbench2Action, Tbench2Observation
from opencode_openenv.tbench2.settings import Tbench2ServerConfig, most_sessions, read_settings


async def _start(config: Tbench2ServerConfig, resources: AsyncExitStack) -> FastAPI:
    # Nothing for the resources: sessions end with their connections, and their sandboxes with them.
    config.require_agents_out_of_reach(read_settings().runtime, LocalSandboxConfig())
    # Sessions that are made over HTTP end with nothing but a message, and places are few.
    sessions = ConcurrencyConfig(max_concurrent_envs=most_sessions(), session_timeout=14_400.0)
    application: FastAPI = create_fastapi_app(
        Tbench2Environment, Tbench2Action, Tbench2Observation, env_name="tbench2_env", concurrency_config=sessions
    )
    return application


app = OpenEnvServer("tbench2_env", Tbench2ServerConfig, _start)
