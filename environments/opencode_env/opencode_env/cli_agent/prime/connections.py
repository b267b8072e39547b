"""The SDK's client as we use it: its connections are bounded, and what the platform answers to a creation is watched.

The SDK takes a bound from whoever makes the client, which is verifiers, and for the gateway only. Waits that it makes
by itself after a 429 are seen at the public hooks of its HTTP client.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from weakref import WeakSet

import httpx
from opencode_rubrics.verifiers_versions import bound_gateway
from prime_sandboxes import AsyncSandboxClient

from opencode_env.cli_agent.prime.errors import surely_refused
from opencode_env.cli_agent.prime.start_record import StartRecord

TOO_MANY = 429
_MOST_KEPT = 200
"""Connections that stay open while they are idle, as the SDK has it."""

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


async def _asking(_: httpx.Request) -> None:
    if (record := _CREATING.get()) is not None:
        record.asked()


async def _answered(response: httpx.Response) -> None:
    if (record := _CREATING.get()) is None:
        return
    if surely_refused(response.status_code):
        record.unclear -= 1
    if response.status_code == TOO_MANY:
        record.refused()
