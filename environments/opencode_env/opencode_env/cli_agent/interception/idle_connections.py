"""Closes connections to a server that carry no request for long: each costs descriptors, and some never ask at all."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from aiohttp import web

LOOK_SECONDS = 15.0


class IdleConnections:
    """Knows which of a server's connections carry a request; one may carry none for `timeout` seconds (None: ever)."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._busy: Counter[object] = Counter()
        self._idle_since: dict[object, float] = {}

    def seen(self, request: web.BaseRequest) -> None:
        """Note that the request's connection carried one just now."""
        self._idle_since[request.protocol] = time.monotonic()

    def carry(self, request: web.BaseRequest, until_end: ExitStack) -> None:
        """Mark the request's connection as busy until then."""
        self._busy[request.protocol] += 1
        until_end.callback(self._carried, request)

    def _carried(self, request: web.BaseRequest) -> None:
        connection = request.protocol
        self._busy[connection] -= 1
        if not self._busy[connection]:
            del self._busy[connection]
        self.seen(request)

    @asynccontextmanager
    async def closing(self, runner: web.AppRunner) -> AsyncIterator[None]:
        """Close idle connections of a running server while the body runs."""
        watch = asyncio.create_task(self._watch(runner))
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self, runner: web.AppRunner) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS if self._timeout is None else min(LOOK_SECONDS, self._timeout / 4))
            connections = runner.server.connections if runner.server is not None else []
            now = time.monotonic()
            self._idle_since = {one: self._idle_since.get(one, now) for one in connections}
            for connection in connections:
                idle = now - self._idle_since[connection]
                if self._timeout is not None and idle > self._timeout and connection not in self._busy:
                    connection.force_close()
                    if connection.transport is not None:
                        connection.transport.close()
