"""verifiers' HTTP client of a chat endpoint, with less work for each call.

httpcore looks several times at every connection of a pool for each request, so that with hundreds of calls at once one
pool takes more of the serving thread than all the rest of a call: here each connection is a pool of its own. verifiers
makes a call's headers and parses its URL anew each time: here they are made once for each rollout. Invariant: there are
at most as many connections as verifiers allows one client, one that is free is used again, and what goes upstream is
what verifiers' own client sends. Beyond so many calls at once, a call waits for the first connection that gets free.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from ssl import SSLContext
from typing import Any

import httpx
from verifiers.v1.clients import BaseClientConfig, EvalClient
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.errors import model_error

CONNECTIONS = 1000
"""At once, which is verifiers' limit."""

KEPT_CONNECTIONS = 100
"""Without a request, that stay open."""


class EndpointHttp(EvalClient):
    """verifiers' client, which makes headers and URLs once."""

    def __init__(self, config: BaseClientConfig) -> None:
        super().__init__(config)
        url = httpx.URL(config.base_url)
        if url.query:  # such as ?api-version=…: it belongs behind every path
            self.base_url, self.client.params = str(url.copy_with(query=None)), url.params
        # Proxies of the environment stay; there is no public way to keep them.
        self.client._transport = Connections()
        self._url: Callable[[str], Any] = lru_cache(httpx.URL)
        self._made: dict[tuple[object, ...], httpx.Headers] = {}

    def _headers(
        self, dialect: Dialect[Any], incoming: Mapping[str, str] | None, session_id: str | None
    ) -> httpx.Headers:
        given = [pair for pair in (incoming or {}).items() if pair[0].lower() != "content-length"]  # never sent on
        key = (type(dialect), session_id, *given)
        if key not in self._made:
            if len(self._made) >= 1000:
                self._made.clear()
            self._made[key] = super()._headers(dialect, incoming, session_id)
        return self._made[key].copy()

    async def _request(self, url: Any, *args: Any, **options: Any) -> httpx.Response:
        try:
            response = await super()._request(self._url(url), *args, **options)
        except Refused as refused:
            status = refused.response.status_code
            told = f"upstream {status}: {refused.response.text}"
            raise model_error(told, status_code=status) from refused
        if not options.get("stream") and response.content.lstrip()[:1] not in (b"{", b"["):
            raise NoJsonError(response)
        return response


class Refused(Exception):
    """An endpoint does not take a call now; its response, read, may say when it does."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.response = response


async def look_for_wait(response: httpx.Response) -> None:
    """Keep a refusal whole that may say when to ask again: verifiers keeps its text only.

    Raises:
        Refused: it is one.
    """
    if response.status_code in WAITING:
        await response.aread()
        raise Refused(response)


WAITING = (429, 503)
"""Statuses whose headers may say when to ask again."""


class NoJsonError(Exception):
    """An endpoint answered a request for a whole answer with what is not JSON."""

    def __init__(self, response: httpx.Response) -> None:
        kind = response.headers.get("content-type", "no content type")
        super().__init__(f"the endpoint answered {response.status_code} with {kind}")
        self.text = response.text


def is_framed(reply: RelayReply) -> bool:
    """Whether the end of a reply that was read without an error is that of its answer: a body that ends with its
    connection may have been cut."""
    response = getattr(reply.close, "__self__", None)  # verifiers hands on no more of it
    headers = response.headers if isinstance(response, httpx.Response) else {}
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "")


class Connections(httpx.AsyncBaseTransport):
    """Sends each request through a connection of its own, one that is free if there is one. httpcore can lose a
    connection whose request is cancelled as it begins: it counts for ever and serves nobody. So no request waits for a
    connection that another has, and the connection of one that was cancelled is closed."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._open: set[httpx.AsyncHTTPTransport] = set()
        self._free: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; it has its connection until its response is closed."""
        await self._places.acquire()
        connection = self._free.pop() if self._free else self._another()
        try:
            response = await connection.handle_async_request(request)
        except BaseException as error:
            await self._release(connection, error)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Stream(response.stream, partial(self._release, connection))
        return response

    async def aclose(self) -> None:
        while self._open:
            await self._open.pop().aclose()

    def _another(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        connection = httpx.AsyncHTTPTransport(verify=_tls(), limits=limits)
        self._open.add(connection)
        return connection

    async def _release(self, connection: httpx.AsyncHTTPTransport, error: BaseException | None) -> None:
        try:
            if not isinstance(error, asyncio.CancelledError) and len(self._free) < KEPT_CONNECTIONS:
                self._free.append(connection)
            else:
                self._open.discard(connection)
                await connection.aclose()
        finally:
            self._places.release()


@dataclass(frozen=True)
class _Stream(httpx.AsyncByteStream):
    """A response's body, and what is done when it is closed, with the error of closing it."""

    body: httpx.AsyncByteStream
    release: Callable[[BaseException | None], Awaitable[None]]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.body.__aiter__()

    async def aclose(self) -> None:
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
