"""Replies of a model endpoint that hold halves of characters, made whole before the engine reads them.

The engine's parser takes such a reply for a broken one, which would make an error of what the model said. Streams are
mended in `whole_streams.py`.
"""

import json

import httpx
from verifiers.v1.clients import Client

from opencode_env.cli_agent.interception.whole_text import holds_half, whole_json


def with_whole_replies(client: Client) -> Client:
    """The same client; one that asks an endpoint over HTTP mends what comes back."""
    http = getattr(client, "client", None)
    if isinstance(http, httpx.AsyncClient):
        hooks = http.event_hooks
        http.event_hooks = {**hooks, "response": [*hooks["response"], _mend]}
    return client


async def _mend(response: httpx.Response) -> None:
    if not response.headers.get("content-type", "").startswith("application/json"):
        return
    if holds_half(await response.aread()):
        try:
            whole = whole_json(json.loads(response.content))
        except (ValueError, RecursionError):
            return  # the engine says what is wrong with it
        response._content = json.dumps(whole).encode()  # which httpx returns from here on; there is no public way
