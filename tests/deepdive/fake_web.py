"""A search endpoint and the pages that it finds, on the loopback."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.served_app import served

KEY = "the-key-of-the-search"


@dataclass
class FakeWeb:
    """What was asked, and how the endpoint answers."""

    url: str = ""
    status: int = 200
    refused: str = ""
    """A query with this text is answered with `status`, and no other one."""
    allowed: int = 1 << 30
    """Queries until each is answered with 429, for `busy` ones."""
    busy: int = 0
    results: list[dict[str, Any]] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    async def search(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        status = self.status if self.refused in self.asked[-1]["q"] else 200
        if len(self.asked) > self.allowed and self.busy:
            self.busy, status = self.busy - 1, 429
        self.keys.append(request.headers.get("X-API-KEY"))
        found = [
            {"title": "Wall of  stones", "link": f"{self.url}/page", "snippet": "s" * 5000},
            {"title": "Other", "link": f"{self.url}/long", "snippet": ""},
        ]
        organic = found if self.results is None else self.results
        return web.json_response({"organic": organic, "credits": 1}, status=status)

    async def page(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name == "page":
            text = "<title>t</title><script>no()</script><p>The  wall</p><p>has 4711 stones &amp; no door.</p>"
            return web.Response(text=text, content_type="text/html")
        if name == "long":
            return web.Response(text="abcdefghij" * 500, content_type="text/plain")
        if name == "picture":
            return web.Response(body=b"\x89PNG", content_type="image/png")
        if name == "packed":
            body = b"<p>" * (1 << 20)
            for _ in range(2 if request.query.get("twice") else 1):
                body = gzip.compress(body)
            coding = "gzip, gzip" if request.query.get("twice") else "gzip"
            return web.Response(body=body, headers={"Content-Encoding": coding, "Content-Type": "text/html"})
        if name == "inside":
            raise web.HTTPFound("http://169.254.169.254/latest")
        if name == "round":
            raise web.HTTPFound(f"{self.url}/round")
        raise web.HTTPNotFound


@asynccontextmanager
async def fake_web() -> AsyncIterator[FakeWeb]:
    """The endpoint at `/search`, pages beside it."""
    fake, app = FakeWeb(), web.Application()
    app.router.add_post("/search", fake.search)
    app.router.add_get("/{name}", fake.page)
    async with served(app) as url:
        fake.url = url
        yield fake
