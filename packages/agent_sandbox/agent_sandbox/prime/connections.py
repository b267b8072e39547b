"""The SDK's client as we use it: its connections are bounded, and what the platform answers to a creation is watched.

The SDK takes a bound from whoever makes the client, which is verifiers, and for the gateway only. Waits that it makes
by itself after a 429 are seen at the public hooks of its HTTP client. What it says of timeouts does not hold by itself
(0.5.1): each request to the platform overrules them with none.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import httpx
from prime_sandboxes import AsyncSandboxClient

from agent_sandbox.prime.errors import surely_refused
from agent_sandbox.prime.start_record import StartRecord
from agent_sandbox.verifiers_versions import bound_gateway

TOO_MANY = 429
_MOST_KEPT = 200
"""Connections that stay open while they are idle, as the SDK has it."""

_ANSWER = httpx.Timeout(120.0, connect=10.0)
"""For one answer of the platform, and for a connection to it."""
_SENT = "send_request_headers.started"
"""How the event ends after which a request may have done something; a connection that cannot be made comes before."""

_PREPARED: WeakSet[AsyncSandboxClient] = WeakSet()
_CREATING: ContextVar[StartRecord | None] = ContextVar("creating", default=None)
"""Of the sandbox that this task asks for right now."""


@contextlib.contextmanager
def creating(record: StartRecord) -> Iterator[None]:
    """Have the requests of the body, and the waits between them, recorded as those for one sandbox."""
    token = _CREATING.set(record)
    try:
        yield
    finally:
        _CREATING.reset(token)


def prepare(client: AsyncSandboxClient, most: int) -> None:
    """Bound and watch a client that has not made a connection yet; without effect on one that is prepared."""
    if client in _PREPARED:
        return
    _PREPARED.add(client)
    bound_gateway(client, most, kept := min(most, _MOST_KEPT))
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
    if (record := _CREATING.get()) is None:
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
    if (record := _CREATING.get()) is None:
        return
    if surely_refused(response.status_code):
        record.unclear -= 1
    if response.status_code == TOO_MANY:
        record.refused()
