"""The tunnel from remote sandboxes to a server, or an own URL in its place: watched, and replaced once it is dead.

A tunnel's service can lose it, and a proxy can go, while nothing fails here: the agents' calls just stop coming. So a
server checks its own health, through its own URL. A tunnel is called dead only when three health checks in a row
failed, while the server answered at once around it and no rollout's request came through it. What is slow is not dead,
and neither is a URL that this machine itself never reached.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web
from rollout_sandbox.told import without_credentials
from verifiers.v1.errors import TunnelError
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.interception.tunnel import CustomTunnelConfig, Tunnel

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

CHECK_PATH = "/v1/models"
"""Where health is asked for: a path that every proxy of an interception lets through."""
_TIMEOUT_S = 5.0
_AT_ONCE_S = 2.0
"""How soon a server that nothing holds up has answered itself."""
_AGAIN_S = 1.0
_FAILED_CHECKS = 3
_BIRTH_S = 30.0
"""How long a new tunnel may take until it leads here."""
_NEW_TUNNEL_S = 120.0
"""How long a new rollout waits for a tunnel."""
_REST_S = (5.0, 60.0)
"""Between tries for a new tunnel: the first rest, and the longest."""


class OpenTunnel:
    """One URL, for as long as it leads to the server; its rollouts share it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why it is dead, once it is."""
        self.in_doubt = False
        """Whether the last health check failed."""
        self.asked = asyncio.Event()
        self.judged = asyncio.Event()

    async def judge(self) -> None:
        """Wait until the next health checks have told whether it leads there."""
        if self.lost.done():
            return
        self.judged.clear()
        self.asked.set()
        await self.judged.wait()


async def until_lost(tunnel: OpenTunnel | None) -> None:
    """Wait until the tunnel of a rollout is dead: for ever where there is none, as between local sandboxes and here."""
    await (asyncio.Event().wait() if tunnel is None else asyncio.shield(tunnel.lost))


async def require_tunnel(tunnel: OpenTunnel | None, *, doubted: bool) -> None:
    """Refuse a run whose tunnel to the model is dead (None: it cannot be lost). Where the agent failed (`doubted`),
    health is asked for now.

    Raises:
        TunnelError: it is.
    """
    if tunnel is None:
        return
    if not tunnel.lost.done() and (doubted or tunnel.in_doubt):
        await tunnel.judge()
    if tunnel.lost.done():
        reason, where = tunnel.lost.result(), without_credentials(tunnel.url)
        raise TunnelError(f"the tunnel from the sandboxes to the model, {where}, is dead: {reason}")


def watched(server: InterceptionServer, every: float | None) -> "WatchedTunnel | None":
    """Have the tunnel of a server that has not started watched, a health check `every` so many seconds; None where it
    has none, or nobody is to look."""
    if server.tunnel is None or every is None:
        return None
    tunnel = WatchedTunnel(server.tunnel, every, partial(setattr, server, "base_url"))
    server.tunnel = tunnel  # type: ignore[assignment]  # it has what the server asks of a tunnel
    return tunnel


class WatchedTunnel:
    """A tunnel of verifiers', which `inner` opens, replaced by another one like it when it is dead; `moved` is told the
    URL of each. Its health is checked `every` so many seconds."""

    def __init__(self, inner: Tunnel[Any], every: float, moved: Callable[[str], None]) -> None:
        self._inner = inner
        self.bind_host, self.bind_port = inner.bind_host, inner.bind_port
        self._every = every
        self._moved = moved
        self._own_url = isinstance(inner.config, CustomTunnelConfig)
        self._up = asyncio.Event()
        self._came = 0
        self._bearer = f"Bearer {secrets.token_urlsafe(16)}"
        self.answer = secrets.token_urlsafe(16)
        """What the server answers to its own health checks."""
        self.present: OpenTunnel | None = None
        """The present one; None while there is none."""

    def asked_by(self, request: web.BaseRequest) -> bool:
        """Whether a request is a health check."""
        said = request.headers.get("Authorization", "").encode(errors="replace")
        return secrets.compare_digest(said, self._bearer.encode())

    def note_request(self) -> None:
        """Note that a rollout's request arrived."""
        self._came += 1

    async def wait(self) -> None:
        """Wait until there is a tunnel.

        Raises:
            TunnelError: there is none for two minutes.
        """
        try:
            async with asyncio.timeout(_NEW_TUNNEL_S):
                await self._up.wait()
        except TimeoutError as error:
            late = f"no tunnel from the sandboxes to the model came up within {_NEW_TUNNEL_S:g} s"
            raise TunnelError(late) from error

    @asynccontextmanager
    async def expose(self, port: int) -> AsyncIterator[str]:
        """Have a tunnel to `port` for as long as the context is open; the URL of the first.

        Raises:
            TunnelError: the first could not be opened.
        """
        first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        keeping = asyncio.create_task(self._keep(port, first))
        try:
            yield await asyncio.shield(first)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self, port: int, first: asyncio.Future[str]) -> None:
        """Open one tunnel after the other; only the first may fail."""
        rest, longest = _REST_S
        while True:
            try:
                async with self._inner.expose(port) as url:
                    await self._hold(url, port, first)
                rest = _REST_S[0]
            except Exception as error:  # noqa: BLE001 - a tunnel's client may raise anything; rollouts wait for the next
                if not first.done():
                    first.set_exception(error)
                    return
                logger.warning("no new tunnel from the sandboxes to the model: %s: %s", type(error).__name__, error)
                await asyncio.sleep(rest * random.uniform(0.5, 1.5))
                rest = min(rest * 2, longest)

    async def _hold(self, url: str, port: int, first: asyncio.Future[str]) -> None:
        """Let rollouts have a tunnel until it is dead; one that follows another has to answer first."""
        tunnel, again = OpenTunnel(url), first.done()
        if again and not await self._answers(url):
            return
        self.present = tunnel
        self._moved(url)
        self._up.set()
        if not again:
            first.set_result(url)
        try:
            reason = await self._until_dead(tunnel, port, answered=again)
            where = without_credentials(url)
            logger.error("the tunnel from the sandboxes to the model, %s, is dead: %s", where, reason)
            tunnel.lost.set_result(reason)
        except Exception as error:  # nobody watches it any more, so nobody may rely on it
            tunnel.lost.set_result(type(error).__name__)
            raise
        finally:
            self.present = None
            self._up.clear()
            tunnel.judged.set()

    async def _answers(self, url: str) -> bool:
        end = time.monotonic() + _BIRTH_S
        while problem := await self._problem(url):
            if time.monotonic() > end:
                told = "the new tunnel from the sandboxes to the model, %s, does not lead here: %s"
                logger.warning(told, without_credentials(url), problem)
                return False
            await asyncio.sleep(_AGAIN_S)
        return True

    async def _until_dead(self, tunnel: OpenTunnel, port: int, *, answered: bool) -> str:
        """Watch a tunnel; returns why it is dead."""
        born, missing = time.monotonic(), 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S if missing else self._every):
                    await (asyncio.Event() if missing else tunnel.asked).wait()
            tunnel.asked.clear()
            came, problem = self._came, await self._problem(tunnel.url)
            if not self._own_url and time.monotonic() - born > _BIRTH_S:
                answered = True
            if not problem or not answered or self._came != came or not await self._answers_at_once(port):
                answered, missing = answered or not problem, 0
                tunnel.judged.set()
            else:
                missing += 1
                if missing == _FAILED_CHECKS:
                    return problem
            tunnel.in_doubt = missing > 0

    async def _answers_at_once(self, port: int) -> bool:
        started = time.monotonic()
        problem = await self._problem(f"http://127.0.0.1:{port}", around_proxies=True)
        return not problem and time.monotonic() - started < _AT_ONCE_S

    async def _problem(self, url: str, *, around_proxies: bool = False) -> str:
        """Return why a health check failed; empty when it did not."""
        headers, timeout = {"Authorization": self._bearer}, aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=not around_proxies) as client,
                client.get(f"{url}{CHECK_PATH}", headers=headers, allow_redirects=False) as response,
            ):
                said = await response.content.read(200)
        except TimeoutError:
            return f"no answer within {_TIMEOUT_S:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__
        if said == self.answer.encode():
            return ""
        return f"HTTP {response.status} of something else"
