"""The server of `run_rollout`: OpenEnv's application over the rollout service, a session for each of its clients.

Written to what OpenEnv 0.3 to 0.10 share. A session holds nothing but its tallies; what runs belongs to the service.
`app` is also an ASGI application, for those who listen by a program of their own, as OpenEnv's providers do with what
`openenv.yaml` names.
"""

import functools
import warnings
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool, ToolResult
from openenv.core.env_server import ConcurrencyConfig, MCPEnvironment, create_fastapi_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import PrivateAttr

from opencode_openenv.openenv_server import OpenEnvServer
from opencode_openenv.result import RolloutResult
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.service import RolloutService
from opencode_openenv.settings import ServerConfig
from opencode_openenv.spec import RolloutSpec

_TOOL = "run_rollout"
_DESCRIPTION = """\
Run one rollout of the OpenCode coding agent in a sandbox of its own: setup commands, the agent with the instruction,
then verify commands. Returns a RolloutResult as JSON text. Failures of the rollout are in its field `error`, with a
reward of null; only wrong arguments are an error of the tool."""
_BY_ITSELF_SECONDS = 10 * 86_400.0
"""OpenEnv ends a call after 30 s unless it is told otherwise; a rollout has limits of its own."""
_ANSWER = {
    "type": "object",
    "properties": {"result": {"type": "string", "description": "A RolloutResult as JSON."}},
    "required": ["result"],
    "x-fastmcp-wrap-result": True,
}


class OpenCodeState(State):
    """Holds what a session has done so far."""

    rollouts_completed: int = 0
    last_reward: float | None = None
    last_task_id: str | None = None
    last_sandbox_id: str | None = None

    def add(self, result: RolloutResult) -> None:
        self.rollouts_completed += 1
        self.step_count += 1
        self.last_reward = result.reward
        self.last_task_id = result.task_id or None
        self.last_sandbox_id = result.sandbox_id or None


class RunRollout(Tool):
    """The tool; its schema is the spec's."""

    _service: RolloutService = PrivateAttr()
    _environment: "OpenCodeEnvironment" = PrivateAttr()

    @classmethod
    def of(cls, service: RolloutService, environment: "OpenCodeEnvironment") -> "RunRollout":
        tool = cls(
            name=_TOOL, description=_DESCRIPTION, parameters=RolloutSpec.model_json_schema(), output_schema=_ANSWER
        )
        tool._service, tool._environment = service, environment
        return tool

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """One rollout, as JSON text; wrong arguments are a `ToolError`."""
        try:
            result = await self._service.run(arguments)
        except ValueError as error:
            raise ToolError(str(error)) from error
        self._environment.state.add(result)
        text = result.model_dump_json()
        return ToolResult(content=text, structured_content={"result": text})


class OpenCodeEnvironment(MCPEnvironment):
    """A session with one client."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, service: RolloutService) -> None:
        self._state = OpenCodeState(episode_id=str(uuid4()))
        server = FastMCP("opencode_env")
        server.add_tool(RunRollout.of(service, self))
        super().__init__(server)

    @property
    def state(self) -> OpenCodeState:
        return self._state

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        self._state = OpenCodeState(episode_id=episode_id or str(uuid4()))
        return Observation(done=False, reward=None, metadata={"status": "ready", "tool": _TOOL})

    # OpenEnv finds the time limit of a call only where both of these are overridden.
    def step(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        found: Observation = super().step(action, timeout_s=timeout_s or _BY_ITSELF_SECONDS, **options)
        return found

    async def step_async(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        found: Observation = await super().step_async(action, timeout_s=timeout_s or _BY_ITSELF_SECONDS, **options)
        return found

    def _step_impl(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        return Observation(
            done=False,
            reward=None,
            metadata={"error": f"unknown action {type(action).__name__}: call the tool {_TOOL}"},
        )


async def _start(config: ServerConfig, resources: AsyncExitStack) -> FastAPI:
    engine = await resources.enter_async_context(RolloutEngine(config.environment()).open())
    service = RolloutService(engine, config)
    resources.push_async_callback(service.stop)
    # OpenEnv 0.4.1 reads fields by the names that they had before MCP's SDK 2.
    warnings.filterwarnings("ignore", message="Accessing `.*` is deprecated; MCP SDK v2 renamed")
    # Not `create_app`: it adds pages where ENABLE_WEB_INTERFACE says so, and pages are not served here.
    application: FastAPI = create_fastapi_app(
        functools.partial(OpenCodeEnvironment, service),
        CallToolAction,
        CallToolObservation,
        env_name="opencode_env",
        # A session that runs no rollout costs a thread and little else.
        # Sessions that OpenEnv 0.10's clients make over HTTP end with nothing but a message.
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=1024, session_timeout=config.idle_session_s),
    )
    return application


app = OpenEnvServer("run_rollout", ServerConfig, _start)
