"""One question to a JSON search endpoint.

Invariant: what the endpoint says comes back bounded, and its key never does. An endpoint that does not work ends the
server: then the rollout is an error, and not a score of what an agent without search could do.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

KEY_VARIABLE = "SEARCH_API_KEY"
MAX_QUERY_CHARS = 400
MAX_RESULTS = 10
MAX_SNIPPET_CHARS = 600
MAX_RESPONSE_BYTES = 2 << 20
_TRIES = 3
PAUSE = 0.5
"""Seconds after the first failure; twice as many after each further one."""
_TITLES, _LINKS = ("title", "name"), ("link", "url")
_SNIPPETS = ("snippet", "description", "content", "text")


class EndpointDown(Exception):
    """The endpoint cannot be asked: its key, its limits, or itself."""


def _option(default: Any, meaning: str) -> Any:
    """A field that is an option of the program, with its help."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class Options:
    """How the endpoint is asked; the defaults are Serper's."""

    url: str = _option("https://google.serper.dev/search", "the search endpoint")
    method: Literal["GET", "POST"] = _option("POST", "GET sends the query in the address, POST as JSON")
    query_field: str = _option("q", "name of the query in a request")
    count_field: str = _option("num", "name of the number of results in a request")
    results: str = _option("organic", "where the list of results is in the answer; dots lead inwards")
    key_header: str = _option("X-API-KEY", "header that carries the key")
    key_prefix: str = _option("", 'text before the key, "Bearer " for most endpoints')
    timeout: float = _option(15.0, "seconds for one request, and for one page")
    max_page_chars: int = _option(20_000, "characters of a page that one call of `open` returns")
    allow_private: bool = _option(False, "let `open` reach addresses of this machine and its networks")


async def search(query: str, count: int, options: Options) -> str:
    """The results as a numbered list of title, address and snippet.

    Raises:
        EndpointDown: it does not work, after three tries.
        ValueError: it refuses this query.
    """
    asked: dict[str, Any] = {
        options.query_field: query[:MAX_QUERY_CHARS],
        options.count_field: min(max(count, 1), MAX_RESULTS),
    }
    parameters = {"json": asked} if options.method == "POST" else {"params": asked}
    key = os.environ.get(KEY_VARIABLE, "")
    headers = {options.key_header: f"{options.key_prefix}{key}"} if key else {}
    problem = ""
    async with httpx.AsyncClient(timeout=options.timeout, headers=headers, trust_env=False) as client:
        for attempt in range(_TRIES):
            try:
                async with asyncio.timeout(options.timeout):
                    status, body = await _asked(client, options, parameters)
            except (httpx.HTTPError, TimeoutError) as error:
                problem = type(error).__name__
            else:
                if status < 400:
                    return _listed(body, options.results)
                problem = f"HTTP {status}"
                if status in (401, 402, 403):
                    break
                if status < 500 and status not in (408, 429):
                    raise ValueError(f"the search refused this query ({problem})")
            await asyncio.sleep(PAUSE * 2**attempt)
    raise EndpointDown(f"the search endpoint does not work: {problem}")


async def _asked(client: httpx.AsyncClient, options: Options, parameters: Mapping[str, Any]) -> tuple[int, bytes]:
    async with client.stream(options.method, options.url, **parameters) as response:
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_RESPONSE_BYTES:
                raise EndpointDown(f"the search endpoint answered with more than {MAX_RESPONSE_BYTES} bytes")
        return response.status_code, body


def _listed(body: bytes, path: str) -> str:
    try:
        found: Any = httpx.Response(200, content=body).json()
    except ValueError as error:
        raise EndpointDown("the search endpoint answered with something else than JSON") from error
    for name in path.split(".") if path else ():
        found = found.get(name) if isinstance(found, dict) else None
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    lines = [
        f"{number}. {_first(entry, _TITLES)}\n{_first(entry, _LINKS)}\n{_first(entry, _SNIPPETS)}"
        for number, entry in enumerate(entries[:MAX_RESULTS], 1)
    ]
    return "\n\n".join(lines) or "Nothing was found."


def _first(entry: Mapping[str, Any], names: tuple[str, ...]) -> str:
    found = next((entry[name] for name in names if isinstance(entry.get(name), str)), "")
    return " ".join(found.split())[:MAX_SNIPPET_CHARS]
