"""`app`: the server of `run_rollout` as an ASGI application, for those who listen by a program of their own.

OpenEnv's providers do so with what `openenv.yaml` names. Invariant: it serves nobody without a token, because it cannot
know who reaches the address that the other program listens at.
"""

from contextlib import AsyncExitStack

from verifiers.v1.errors import RolloutError

from opencode_env.openenv.engine import Engine
from opencode_env.openenv.guard import GuardedApplication, Message, Receive, Send
from opencode_env.openenv.listening import TOKEN_VARIABLE
from opencode_env.openenv.server import application_of
from opencode_env.openenv.service import RolloutService
from opencode_env.openenv.settings import ServerConfig


class ServerApplication:
    """The application, with the options' defaults; its engine is open between startup and shutdown."""

    def __init__(self) -> None:
        self._open = AsyncExitStack()
        self._guarded: GuardedApplication

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a connection, or the program's start and end."""
        if scope["type"] != "lifespan":
            await self._guarded(scope, receive, send)
            return
        try:
            await receive()
            await self._start()
        except (RolloutError, ValueError) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._open.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        """Open the engine.

        Raises:
            SandboxError: the confined local sandbox does not work here.
            ValueError: there is no token.
        """
        config = ServerConfig()
        token = config.token()
        if token is None:
            raise ValueError(f"set {TOKEN_VARIABLE}: whoever reaches this server runs shell commands at your expense")
        engine = await self._open.enter_async_context(Engine(config.environment()).open())
        service = RolloutService(engine, config)
        self._open.push_async_callback(service.stop)
        self._guarded = GuardedApplication(application_of(service, config), token, config.max_request_bytes)


app = ServerApplication()
