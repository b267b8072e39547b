"""Connections to a model endpoint, in pools of a few each.

httpcore looks several times at every connection of a pool for each request, so that with hundreds of calls at once one
pool takes more of the serving thread than all the rest of a call. Invariant: there are at most as many connections as
verifiers allows one client, and calls share one pool as long as they are few.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext

import httpx

POOLS, CONNECTIONS = 100, 10
"""Together 1,000 connections, which is verifiers' limit."""

KEPT_POOLS = 10
"""Pools without a request that keep their connections."""


@dataclass(eq=False)
class _Pool:
    """One pool, and how many requests it carries."""

    transport: httpx.AsyncHTTPTransport
    requests: int = 0


class ConnectionPools(httpx.AsyncBaseTransport):
    """Sends each request through the first pool that has a connection to spare."""

    def __init__(self) -> None:
        self._pools: list[_Pool] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; its pool carries it until its response is closed."""
        pool = next((one for one in self._pools if one.requests < CONNECTIONS), None) or self._another()
        pool.requests += 1
        try:
            response = await pool.transport.handle_async_request(request)
        except BaseException:
            await self._release(pool)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Stream(response.stream, lambda: self._release(pool))
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        while self._pools:
            await self._pools.pop().transport.aclose()

    def _another(self) -> _Pool:
        if len(self._pools) >= POOLS:
            return min(self._pools, key=lambda one: one.requests)
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        self._pools.append(_Pool(httpx.AsyncHTTPTransport(verify=_tls(), limits=limits)))
        return self._pools[-1]

    async def _release(self, pool: _Pool) -> None:
        pool.requests -= 1
        if not pool.requests and pool in self._pools and sum(not one.requests for one in self._pools) > KEPT_POOLS:
            self._pools.remove(pool)
            await pool.transport.aclose()


@dataclass(frozen=True)
class _Stream(httpx.AsyncByteStream):
    """A response's body, and what is done when it is closed."""

    body: httpx.AsyncByteStream
    release: Callable[[], Awaitable[None]]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.body.__aiter__()

    async def aclose(self) -> None:
        """Close it."""
        try:
            await self.body.aclose()
        finally:
            await self.release()


@cache
def _tls() -> SSLContext:
    """How certificates are checked, as httpx does; reading them takes a moment."""
    return httpx.create_ssl_context()
