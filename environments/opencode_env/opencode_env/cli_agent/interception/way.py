"""The way from remote sandboxes to a server: a tunnel or an own URL, watched, and replaced once it is dead.

A tunnel's service can lose it, and a proxy can go, while nothing fails here: the agents' calls just stop coming. So a
server asks itself for a sign of life, through its own URL.
Invariant: a way is called dead only when three signs in a row did not come, while the server answered at once without
the way and no rollout's request came along it. What is slow is not dead, and neither is a URL that this machine itself
never reached.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from verifiers.v1.errors import TunnelError
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.interception.tunnel import CustomTunnelConfig, Tunnel

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

SIGN_PATH = "/v1/models"
"""Where the sign is asked for: a path that every proxy of an interception lets through."""
_TIMEOUT_S = 5.0
_AT_ONCE_S = 2.0
"""How soon a server that nothing holds up has answered itself."""
_AGAIN_S = 1.0
_SIGNS = 3
_BIRTH_S = 30.0
"""How long a new tunnel may take until it leads here."""
_NEW_WAY_S = 120.0
"""How long a new rollout waits for a way."""
_REST_S = (5.0, 60.0)
"""Between tries for a new way: the first rest, and the longest."""
_LONGEST_SIGN = 200


@dataclass(frozen=True)
class Sign:
    """What a server says to whoever knows the secret."""

    secret: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    answer: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    def asked_by(self, request: web.BaseRequest) -> bool:
        """Whether a request asks for it."""
        said = request.headers.get("Authorization", "").encode(errors="replace")
        return secrets.compare_digest(said, f"Bearer {self.secret}".encode())


class Way:
    """One URL, for as long as it leads to the server; its rollouts share it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why it is dead, once it is."""
        self.in_doubt = False
        """Whether the last sign did not come."""
        self.asked = asyncio.Event()
        self.judged = asyncio.Event()

    async def judge(self) -> None:
        """Wait until the next signs have told whether it leads there."""
        if self.lost.done():
            return
        self.judged.clear()
        self.asked.set()
        await self.judged.wait()


async def until_lost(way: Way | None) -> None:
    """Wait until the way of a rollout is dead: for ever where there is none, as between local sandboxes and here."""
    await (asyncio.Event().wait() if way is None else asyncio.shield(way.lost))


async def require_way(way: Way | None, *, doubted: bool) -> None:
    """Refuse a run whose way to the model is dead.

    Args:
        way: the run's; None is one that cannot be lost.
        doubted: whether the agent failed, so that signs are asked for now.

    Raises:
        TunnelError: it is.
    """
    if way is None:
        return
    if not way.lost.done() and (doubted or way.in_doubt):
        await way.judge()
    if way.lost.done():
        raise TunnelError(f"the way from the sandboxes to the model, {shown(way.url)}, is dead: {way.lost.result()}")


def shown(url: str) -> str:
    """A URL as it may be logged."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def watched(server: InterceptionServer, every: float | None) -> "WatchedTunnel | None":
    """Have a server's tunnel watched; None where it has none, or nobody is to look.

    Args:
        server: not started yet.
        every: seconds between two signs of life.
    """
    if server.tunnel is None or every is None:
        return None
    tunnel = WatchedTunnel(server.tunnel, every, partial(setattr, server, "base_url"))
    server.tunnel = tunnel  # type: ignore[assignment]  # it has what the server asks of a tunnel
    return tunnel


class WatchedTunnel:
    """A tunnel of verifiers', replaced by another one like it when it is dead.

    Args:
        inner: opens each.
        every: seconds between two signs of life.
        moved: told the URL of each.
    """

    def __init__(self, inner: Tunnel[Any], every: float, moved: Callable[[str], None]) -> None:
        self._inner = inner
        self._every = every
        self._moved = moved
        self._own_url = isinstance(inner.config, CustomTunnelConfig)
        self._up = asyncio.Event()
        self._came = 0
        self.sign = Sign()
        """What the server answers to itself."""
        self.way: Way | None = None
        """The present one; None while there is none."""

    @property
    def bind_host(self) -> str:
        """Interface that the server binds."""
        return self._inner.bind_host

    @property
    def bind_port(self) -> int:
        """Port that the server binds; 0 is any."""
        return self._inner.bind_port

    def came(self) -> None:
        """Note that a rollout's request arrived."""
        self._came += 1

    async def wait(self) -> None:
        """Wait until there is a way.

        Raises:
            TunnelError: there is none for two minutes.
        """
        try:
            async with asyncio.timeout(_NEW_WAY_S):
                await self._up.wait()
        except TimeoutError as error:
            raise TunnelError(f"no way from the sandboxes to the model came up within {_NEW_WAY_S:g} s") from error

    @asynccontextmanager
    async def expose(self, port: int) -> AsyncIterator[str]:
        """Have a way to `port` for as long as the context is open; the URL of the first.

        Raises:
            TunnelError: the first could not be opened.
        """
        first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        keeping = asyncio.create_task(self._keep(port, first))
        try:
            either: list[asyncio.Future[Any]] = [first, keeping]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                keeping.result()
            yield first.result()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self, port: int, first: asyncio.Future[str]) -> None:
        """Open one way after the other; only the first may fail."""
        rest, longest = _REST_S
        while True:
            try:
                async with self._inner.expose(port) as url:
                    await self._hold(url, port, first)
                rest = _REST_S[0]
            except Exception as error:  # a tunnel's client may raise anything, and rollouts wait for the next way
                if not first.done():
                    raise
                logger.warning("no new way from the sandboxes to the model: %s: %s", type(error).__name__, error)
                await asyncio.sleep(rest * random.uniform(0.5, 1.5))
                rest = min(rest * 2, longest)

    async def _hold(self, url: str, port: int, first: asyncio.Future[str]) -> None:
        """Let rollouts have a way until it is dead; one that follows another has to answer first."""
        way, again = Way(url), first.done()
        if again and not await self._answers(url):
            return
        self.way = way
        self._moved(url)
        self._up.set()
        if not again:
            first.set_result(url)
        try:
            reason = await self._until_dead(way, port, answered=again)
            logger.error("the way from the sandboxes to the model, %s, is dead: %s", shown(url), reason)
            way.lost.set_result(reason)
        except Exception as error:  # nobody watches it any more, so nobody may rely on it
            way.lost.set_result(type(error).__name__)
            raise
        finally:
            self.way = None
            self._up.clear()
            way.judged.set()

    async def _answers(self, url: str) -> bool:
        end = time.monotonic() + _BIRTH_S
        while problem := await self._sign_missing(url):
            if time.monotonic() > end:
                logger.warning("the new way from the sandboxes to the model, %s, is none: %s", shown(url), problem)
                return False
            await asyncio.sleep(_AGAIN_S)
        return True

    async def _until_dead(self, way: Way, port: int, *, answered: bool) -> str:
        """Watch a way; returns why it is dead."""
        born, missing = time.monotonic(), 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S if missing else self._every):
                    await (asyncio.Event() if missing else way.asked).wait()
            way.asked.clear()
            came, problem = self._came, await self._sign_missing(way.url)
            if not self._own_url and time.monotonic() - born > _BIRTH_S:
                answered = True
            if not problem or not answered or self._came != came or not await self._answers_at_once(port):
                answered, missing = answered or not problem, 0
                way.judged.set()
            else:
                missing += 1
                if missing == _SIGNS:
                    return problem
            way.in_doubt = missing > 0

    async def _answers_at_once(self, port: int) -> bool:
        started = time.monotonic()
        problem = await self._sign_missing(f"http://127.0.0.1:{port}", around_proxies=True)
        return not problem and time.monotonic() - started < _AT_ONCE_S

    async def _sign_missing(self, url: str, *, around_proxies: bool = False) -> str:
        """Why no sign came; empty when it did."""
        headers = {"Authorization": f"Bearer {self.sign.secret}"}
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=not around_proxies) as client,
                client.get(f"{url}{SIGN_PATH}", headers=headers, allow_redirects=False) as response,
            ):
                said = await response.content.read(_LONGEST_SIGN)
        except TimeoutError:
            return f"no answer within {_TIMEOUT_S:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__
        if said == self.sign.answer.encode():
            return ""
        return f"HTTP {response.status} of something else"
