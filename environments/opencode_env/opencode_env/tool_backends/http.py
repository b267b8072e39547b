"""HTTP to tool servers, with a bound for each answer."""

import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from opencode_env.tool_backends.connection import MAX_ANSWER_BYTES, TOO_LONG


class AnswerTooLong(httpx2.StreamError):
    """A body is longer than an answer may be; `mcp` makes it the error of the one call."""


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error where it gets too long."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise AnswerTooLong(TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def http_client(
    headers: Mapping[str, str],
    timeout: httpx2.Timeout,
    *,
    proxies: bool = True,
    answered: Callable[[int], None] = lambda status: None,
) -> httpx2.AsyncClient:
    """A client with these headers, for servers on this machine without this machine's `proxies`. It follows no
    redirects: the headers are for one host alone. `answered` gets the status of each answer."""

    async def bound(response: httpx2.Response) -> None:
        answered(response.status_code)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)

    # Not compressed: a few bytes could become any number.
    headers = {**headers, "Accept-Encoding": "identity"}
    hooks = {"response": [bound]}
    return httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=proxies, verify=_tls(), event_hooks=hooks)


@functools.cache
def _tls() -> ssl.SSLContext:
    """For every client: to read the certificates takes tens of milliseconds."""
    return httpx2.create_ssl_context()


@contextlib.asynccontextmanager
async def http_connection(url: str, headers: Mapping[str, str], **options: Any) -> AsyncIterator[Any]:
    """The transport of an MCP connection; the options are those of `http_client`."""
    timeout = httpx2.Timeout(600.0, connect=30.0)  # a call has a limit of its own
    async with (
        http_client(headers, timeout, **options) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams
