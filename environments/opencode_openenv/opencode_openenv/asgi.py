"""A server as an ASGI application, for those who listen by a program of their own.

Invariant: it serves nobody without a token, because it cannot know who reaches the address that the other program
listens at.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from verifiers.v1.errors import RolloutError

from opencode_openenv.guard import GuardedApplication, Message, Receive, Send
from opencode_openenv.listening import TOKEN_VARIABLE, ListenConfig

Start = Callable[[AsyncExitStack], Awaitable[GuardedApplication]]
"""Makes the application, with what it needs; raises `ValueError` or `RolloutError` where it cannot."""


class ServerApplication:
    """The application, which is started when the program that listens is."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._guarded: GuardedApplication

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a connection, or the program's start and end."""
        if scope["type"] != "lifespan":
            await self._guarded(scope, receive, send)
            return
        await receive()
        async with AsyncExitStack() as resources:
            try:
                self._guarded = await self._start(resources)
            except (RolloutError, ValueError) as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def required_token(config: ListenConfig) -> str:
    """The token that callers must send.

    Raises:
        ValueError: there is none.
    """
    token = config.token()
    if token is None:
        raise ValueError(f"set {TOKEN_VARIABLE}: whoever reaches this server runs shell commands at your expense")
    return token
