"""The SDK's client as we use it: its connections are bounded, and what the platform answers to a creation is watched.

The SDK takes a bound from whoever makes the client, which is verifiers, and for the gateway only. Waits that it makes
by itself after a 429 are seen at the public hooks of its HTTP client. What it says of timeouts does not hold by itself
(0.5.1): each request to the platform overrules them with none.
"""

import copy
from typing import Any
from weakref import WeakSet

import httpx
from prime_sandboxes import AsyncSandboxClient

from rollout_sandbox.prime.errors import TOO_MANY, surely_refused
from rollout_sandbox.prime.turns import StartRecord

_MOST_KEPT = 200
"""Connections that stay open while they are idle, as the SDK has it."""

_ANSWER = httpx.Timeout(120.0, connect=10.0)
"""For one answer of the platform, and for a connection to it."""
_SENT = "send_request_headers.started"
"""How the event ends after which a request may have done something; a connection that cannot be made comes before."""

_PREPARED: WeakSet[AsyncSandboxClient] = WeakSet()
_RECORD = "start_record"
"""Extension of a request with the record of the sandbox that it asks for."""


class _Recorded:
    """The SDK's HTTP client, whose requests are recorded as those for one sandbox."""

    def __init__(self, inner: httpx.AsyncClient, record: StartRecord) -> None:
        self._inner = inner
        self._record = record

    async def request(self, *arguments: Any, **options: Any) -> httpx.Response:
        return await self._inner.request(*arguments, **options, extensions={_RECORD: self._record})


def recorded(client: AsyncSandboxClient, record: StartRecord) -> AsyncSandboxClient:
    """The same client for the creation of one sandbox, whose requests, and the waits between them, are recorded."""
    copied = copy.copy(client)
    copied.client = copy.copy(client.client)
    inner: Any = _Recorded(client.client.client, record)
    copied.client.client = inner
    return copied


def prepare(client: AsyncSandboxClient, most: int) -> None:
    """Bound and watch a client that has not made a connection yet; without effect on one that is prepared."""
    if client in _PREPARED:
        return
    _PREPARED.add(client)
    kept = min(most, _MOST_KEPT)
    # The SDK (0.5.1) reads these when the gateway is first used; whoever makes the client, which is verifiers, may say.
    client._max_connections, client._max_keepalive_connections = most, kept
    made = client.client.client
    client.client.client = httpx.AsyncClient(
        headers=made.headers,
        follow_redirects=made.follow_redirects,
        timeout=made.timeout,
        limits=httpx.Limits(max_connections=most, max_keepalive_connections=kept),
        event_hooks={"request": [_asking], "response": [_answered]},
    )


async def _asking(request: httpx.Request) -> None:
    request.extensions["timeout"] = _ANSWER.as_dict()
    if (record := request.extensions.get(_RECORD)) is None:
        return
    record.asked()
    sent = False

    async def watch(event: str, _: Any) -> None:
        nonlocal sent
        if not sent and event.endswith(_SENT):
            sent = True
            record.unclear += 1

    request.extensions["trace"] = watch


async def _answered(response: httpx.Response) -> None:
    if (record := response.request.extensions.get(_RECORD)) is None:
        return
    if surely_refused(response.status_code):
        record.unclear -= 1
    if response.status_code == TOO_MANY:
        record.refused()
