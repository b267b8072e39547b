"""Serving an OpenEnv application: behind the guard, from its start to an end that leaves nothing.

Where a program of somebody else listens, nobody is served without a token, because it cannot be known who reaches that
address.
"""

import asyncio
import itertools
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Generic, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol
from verifiers.v1.errors import RolloutError

from opencode_openenv.connection_guard import Application, GuardedApplication, Message, Receive, Send
from opencode_openenv.listening import TOKEN_VARIABLE, ListenConfig

logger = logging.getLogger("verifiers.v1.opencode_openenv")
_ANSWER_SECONDS = 3.0
_SHUTDOWN_SECONDS = 30
"""That sandboxes get to end and leave nothing after SIGTERM or SIGINT."""
_SILENT_SECONDS = 3600.0
"""How long a caller may not answer to a ping: a trainer that steps between its rollouts does nothing else meanwhile. A
connection that breaks is seen at once, except where the network or the machine behind it is gone."""
HEAD_SECONDS = 20.0
"""From a connection, or the end of an answer, to the end of the next request's head."""
MAX_WAITING = 256
"""Connections whose request's head is still to come; of more, the one that waits longest is cut."""


class TimedConnection(H11Protocol):
    """A connection, which is cut when it takes long for the head of a request, or when many others wait for theirs: it
    costs a descriptor before anybody has shown a token. Who is served keeps its connection."""

    _heads: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()
        waiting = (one for one in self.connections if isinstance(one, TimedConnection) and one._heads is not None)
        if len(late := list(itertools.islice(waiting, MAX_WAITING + 1))) > MAX_WAITING:
            min(late, key=lambda one: one._heads.when() if one._heads is not None else 0.0)._cut()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def handle_websocket_upgrade(self, event: object) -> None:
        self._stop()
        super().handle_websocket_upgrade(event)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _look(self) -> None:
        served = self.cycle is not None and not self.cycle.response_complete
        if served or self.transport.is_closing() or self.transport.get_protocol() is not self:
            self._stop()
        elif self._heads is None:
            self._heads = self.loop.call_later(HEAD_SECONDS, self._cut)

    def _stop(self) -> None:
        if self._heads is not None:
            self._heads.cancel()
            self._heads = None

    def _cut(self) -> None:
        self._stop()
        self.transport.abort()


class _Server(uvicorn.Server):
    """Ends what it does before it closes its connections, so that each caller hears of it."""

    def __init__(
        self, config: uvicorn.Config, name: str, resources: AsyncExitStack, guarded: GuardedApplication
    ) -> None:
        super().__init__(config)
        self._name = name
        self._resources = resources
        self._guarded = guarded

    @contextmanager
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
        await super().startup(sockets)
        for server in self.servers:
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                logger.info("%s is served at http://%s:%d", self._name, f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._resources.aclose()
        await self._guarded.answered(_ANSWER_SECONDS)
        await super().shutdown(sockets)


def settings_of(application: Application, config: ListenConfig) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        host=config.host,
        port=config.port,
        http=TimedConnection,
        log_level="warning",
        ws_max_size=config.MAX_REQUEST_BYTES,
        ws_ping_timeout=_SILENT_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


ConfigT = TypeVar("ConfigT", bound=ListenConfig)


class OpenEnvServer(Generic[ConfigT]):
    """An OpenEnv application behind the guard, served by this program, or by another one as an ASGI application: with
    the defaults of `config_type`, and with a token only. `start` makes it, or raises a `ValueError` or `RolloutError`;
    the stack with what it needs is left before the callers are answered for the last time."""

    def __init__(
        self,
        name: str,
        config_type: type[ConfigT],
        start: Callable[[ConfigT, AsyncExitStack], Awaitable[FastAPI]],
    ) -> None:
        self._name = name
        self._config_type = config_type
        self._start = start
        self._guarded: GuardedApplication

    async def serve(self, config: ConfigT) -> None:
        """Serve until SIGINT or SIGTERM."""
        if config.token() is None and not config.is_loopback:
            logger.warning(
                "listening at %s without a token: whoever reaches it runs shell commands at your expense "
                "(--token-file)",
                config.host,
            )
        async with AsyncExitStack() as resources:
            guarded = await self._make(config, resources)
            await _Server(settings_of(guarded, config), self._name, resources, guarded).serve()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._guarded(scope, receive, send)
            return
        await receive()
        async with AsyncExitStack() as resources:
            try:
                config = self._config_type()
                if config.token() is None:
                    raise ValueError(
                        f"set {TOKEN_VARIABLE}: whoever reaches this server runs shell commands at your expense"
                    )
                self._guarded = await self._make(config, resources)
            except (RolloutError, ValueError) as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _make(self, config: ConfigT, resources: AsyncExitStack) -> GuardedApplication:
        application = await self._start(config, resources)
        application.add_exception_handler(ValueError, _wrong_use)
        return GuardedApplication(application, config.token(), config.MAX_REQUEST_BYTES)


async def _wrong_use(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 422)


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Serve to the end, with a log on standard error; a prerequisite that is missing ends the program with one line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger("verifiers.v1")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)  # shows a caller's wrong argument as a failure of ours
    try:
        asyncio.run(serving)
    except (RolloutError, ValueError) as error:
        raise SystemExit(str(error)) from error
