"""Questions to a JSON search endpoint.

Invariant: what the endpoint says comes back bounded, and its key never does. An endpoint that does not work ends the
server: then the rollout is an error, and not a score of what an agent without search could do. Whether it works, a
query of ours decides and not the agent's: a query that alone is refused is an answer.
"""

import asyncio
import json
import os
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from opencode_search.errors import SearchEndpointDown

_KEY_VARIABLE = "SEARCH_API_KEY"
MAX_QUERY_CHARS = 400
MAX_RESULTS = 10
MAX_SNIPPET_CHARS = 600
MAX_RESPONSE_BYTES = 2 << 20
CONTROL = "weather"
ANSWER_SECONDS = 15.0
"""For one request, and for one page."""
PER_MINUTE = 60
"""The most searches of one rollout; a further one is told to wait."""
QUEUED, PATIENCE, _LEAST = 10.0, 35.0, 5.0
"""Seconds for which a query waits for those before it, for which it is asked again, and that a request has at least:
altogether fewer than a tool backend has for a call."""
PAUSE = 1.0
"""Seconds after the first failure; twice as many after each further one."""
CODINGS = {"Accept-Encoding": "gzip, deflate"}
_FINAL = ("HTTP 401", "HTTP 402")
"""What an endpoint says of our key, whatever it is asked."""
_PASSING = ("HTTP 408", "HTTP 429", *(f"HTTP {status}" for status in range(500, 600)), "ConnectError", "ReadError")
"""What may be over when the same query is asked again."""
_TITLES, _LINKS = ("title", "name"), ("link", "url")
_SNIPPETS = ("snippet", "description", "content", "text")


def _option(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class SearchOptions:
    """Sets how the endpoint is asked; the defaults are Serper's."""

    url: str = _option("https://google.serper.dev/search", "the search endpoint")
    method: Literal["GET", "POST"] = _option("POST", "GET sends the query in the address, POST as JSON")
    query_field: str = _option("q", "name of the query in a request")
    count_field: str = _option("num", "name of the number of results in a request")
    results: str = _option("organic", "where the list of results is in the answer; dots lead inwards")
    key_header: str = _option("X-API-KEY", "header that carries the key")
    key_prefix: str = _option("", 'text before the key, "Bearer " for most endpoints')
    allow_private: bool = _option(False, "let `open` reach addresses of this machine and its networks")


@asynccontextmanager
async def place(places: asyncio.Semaphore) -> AsyncIterator[None]:
    """One of the places of calls that run at once; a `ValueError` for the agent if there is none in time."""
    try:
        async with asyncio.timeout(QUEUED):
            await places.acquire()
    except TimeoutError:
        raise ValueError("too many calls at once; ask again when some have ended") from None
    try:
        yield
    finally:
        places.release()


class SearchEndpoint:
    """The endpoint of one rollout, asked one query at a time."""

    def __init__(self, options: SearchOptions) -> None:
        self._options = options
        self._one_at_a_time = asyncio.Semaphore(1)
        self._begun: deque[float] = deque(maxlen=PER_MINUTE)

    async def search(self, query: str, count: int = MAX_RESULTS) -> str:
        """The results as a numbered list of title, address and snippet; a `ValueError` for the agent where the query is
        refused or comes too soon, a `SearchEndpointDown` where neither it nor ours was answered."""
        async with place(self._one_at_a_time):
            return await self._decided(query, min(max(count, 1), MAX_RESULTS))

    async def _decided(self, query: str, count: int) -> str:
        now = time.monotonic()
        if len(self._begun) == self._begun.maxlen and now - self._begun[0] < 60:
            raise ValueError(f"more than {PER_MINUTE} searches in a minute; go on with what was found")
        self._begun.append(now)
        pause, ours_answered, end = PAUSE, False, now + PATIENCE
        while True:
            problem, found = await self._asked(query, count, end)
            if not problem:
                return found
            ours, _ = await self._asked(CONTROL, 1, end)
            if not ours and (ours_answered or problem not in _PASSING):
                raise ValueError(f"the search refused this query ({problem})")
            ours_answered = ours_answered or not ours
            # A flood must not bring down what works: the endpoint gets a rest before it is asked again.
            if ours in _FINAL or end - time.monotonic() < pause:
                break
            await asyncio.sleep(pause)
            pause *= 2
        if ours_answered:
            raise ValueError(f"the search did not answer this query ({problem})")
        raise SearchEndpointDown(f"the search endpoint does not work: {problem}; our own query: {ours}")

    async def _asked(self, query: str, count: int, end: float) -> tuple[str, str]:
        """Return why there are no results, or an empty text; and the results."""
        options, key = self._options, os.environ.get(_KEY_VARIABLE, "")
        seconds = min(ANSWER_SECONDS, max(end - time.monotonic(), _LEAST))
        asked = {options.query_field: query[:MAX_QUERY_CHARS], options.count_field: count}
        parameters: Mapping[str, Any] = {"json": asked} if options.method == "POST" else {"params": asked}
        headers = CODINGS | ({options.key_header: f"{options.key_prefix}{key}"} if key else {})
        try:
            async with (
                asyncio.timeout(seconds),
                httpx.AsyncClient(timeout=seconds, headers=headers, trust_env=False) as client,
                client.stream(options.method, options.url, **parameters) as response,
            ):
                status, body = response.status_code, await read_body(response, MAX_RESPONSE_BYTES + 1)
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            return type(error).__name__, ""
        if status >= 400:
            return f"HTTP {status}", ""
        if len(body) > MAX_RESPONSE_BYTES:
            return f"an answer of more than {MAX_RESPONSE_BYTES} bytes", ""
        try:
            return "", _listed(json.loads(body), options.results)
        except (ValueError, RecursionError):
            return "an answer that is not JSON", ""


async def read_body(response: httpx.Response, most: int) -> bytes:
    """The first `most` bytes of a body, of which no more is ever unpacked; a `ValueError` if it is packed otherwise
    than by one gzip or deflate."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise ValueError(f"a body packed by {coding[:40]!r}")
    unpacker = None if coding == "identity" else zlib.decompressobj(47)  # either header
    body = bytearray()
    async for chunk in response.aiter_raw():
        try:
            body += chunk if unpacker is None else unpacker.decompress(chunk, most - len(body))
        except zlib.error as error:
            raise ValueError("a damaged body") from error
        if len(body) >= most or (unpacker is not None and unpacker.eof):
            break
    return bytes(body[:most])


def _listed(found: Any, path: str) -> str:
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
