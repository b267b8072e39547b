"""verifiers' HTTP client of a chat endpoint, with less work for each call.

httpcore looks several times at every connection of a pool for each request, so that with hundreds of calls at once one
pool takes more of the serving thread than all the rest of a call: here each connection has a pool of its own. verifiers
makes a call's headers and parses its URL anew each time: here they are made once for each rollout. Invariant: there are
at most as many connections as verifiers allows one client, a connection that is free is used again, and what goes
upstream is what verifiers' own client sends. Beyond so many calls at once, a call waits for a place in one pool.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from ssl import SSLContext
from typing import Any

import httpx
from verifiers.v1.clients import BaseClientConfig, EvalClient
from verifiers.v1.dialects import Dialect

POOLS, CONNECTIONS = 1000, 1
"""Together 1,000 connections, which is verifiers' limit."""

KEPT_POOLS = 100
"""Pools without a request that keep their connections."""

_KEPT_HEADERS = 1000


class EndpointHttp(EvalClient):
    """verifiers' client, which makes headers and URLs once."""

    def __init__(self, config: BaseClientConfig) -> None:
        super().__init__(config)
        # Proxies of the environment stay; there is no public way to keep them.
        self.client._transport = ConnectionPools()
        self._url: Callable[[str], Any] = lru_cache(httpx.URL)
        self._made: dict[tuple[object, ...], httpx.Headers] = {}

    def _headers(
        self, dialect: Dialect[Any], incoming: Mapping[str, str] | None, session_id: str | None
    ) -> httpx.Headers:
        given = [pair for pair in (incoming or {}).items() if pair[0].lower() != "content-length"]  # never sent on
        key = (type(dialect), session_id, *given)
        if key not in self._made:
            if len(self._made) >= _KEPT_HEADERS:
                self._made.clear()
            self._made[key] = super()._headers(dialect, incoming, session_id)
        return self._made[key].copy()

    async def _request(self, url: Any, *args: Any, **options: Any) -> httpx.Response:
        return await super()._request(self._url(url), *args, **options)


@dataclass(eq=False)
class _Pool:
    """One pool, and how many requests it carries."""

    transport: httpx.AsyncHTTPTransport
    requests: int = 0


class ConnectionPools(httpx.AsyncBaseTransport):
    """Sends each request through the first pool that has a connection to spare.

    httpcore can lose a connection whose request is cancelled as it begins: it counts for ever and serves nobody. A pool
    in which that may have happened takes no further request.
    """

    def __init__(self) -> None:
        self._pools: list[_Pool] = []
        self._retired: list[_Pool] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; its pool carries it until its response is closed."""
        pool = next((one for one in self._pools if one.requests < CONNECTIONS), None) or self._another()
        pool.requests += 1
        try:
            response = await pool.transport.handle_async_request(request)
        except BaseException as error:
            await self._release(pool, error)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Stream(response.stream, partial(self._release, pool))
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        for pools in (self._pools, self._retired):
            while pools:
                await pools.pop().transport.aclose()

    def _another(self) -> _Pool:
        if self._pools and len(self._pools) + len(self._retired) >= POOLS:
            return min(self._pools, key=lambda one: one.requests)
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        self._pools.append(_Pool(httpx.AsyncHTTPTransport(verify=_tls(), limits=limits)))
        return self._pools[-1]

    def _unused(self) -> int:
        return sum(not one.requests for one in self._pools)

    async def _release(self, pool: _Pool, error: BaseException | None) -> None:
        pool.requests -= 1
        if isinstance(error, asyncio.CancelledError) and pool in self._pools:
            self._pools.remove(pool)
            self._retired.append(pool)
        if pool.requests:
            return
        if pool in self._retired:
            self._retired.remove(pool)
        elif len(self._pools) > KEPT_POOLS and pool in self._pools and self._unused() > KEPT_POOLS:
            self._pools.remove(pool)
        else:
            return
        await pool.transport.aclose()


@dataclass(frozen=True)
class _Stream(httpx.AsyncByteStream):
    """A response's body, and what is done when it is closed, with the error of closing it."""

    body: httpx.AsyncByteStream
    release: Callable[[BaseException | None], Awaitable[None]]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.body.__aiter__()

    async def aclose(self) -> None:
        """Close it."""
        try:
            await self.body.aclose()
        except BaseException as error:
            await self.release(error)
            raise
        await self.release(None)


@cache
def _tls() -> SSLContext:
    """How certificates are checked, as httpx does; reading them takes a moment."""
    return httpx.create_ssl_context()
