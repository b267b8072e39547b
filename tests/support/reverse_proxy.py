"""A reverse proxy before the interception, as operators have one: it streams, and cuts what is silent for long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from verifiers.v1.interception.tunnel import CustomTunnelConfig

from tests.support.places import options_of
from tests.support.user_home import closed_port

_HOP = {"connection", "transfer-encoding", "keep-alive"}


class ReverseProxy:
    """Forwards from one port of the loopback to another.

    Args:
        idle: seconds without a byte from the server after which it gives a request up: 504, or a cut.
        target: port of the server; None is a free one.
    """

    def __init__(self, idle: float = 3600.0, target: int | None = None) -> None:
        self.port = closed_port()
        self.target = closed_port() if target is None else target
        self.idle = idle
        self.hold = 0.0
        """Seconds that each request waits before it goes on."""
        self.cuts = 0
        self.bytes = b""
        """What the server said in all answers."""
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """Where sandboxes find it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def tunnel(self) -> CustomTunnelConfig:
        """The interception's configuration."""
        return CustomTunnelConfig(url=self.url, port=self.target)

    @property
    def options(self) -> list[str]:
        """The interception's configuration, for `vf-eval`."""
        return options_of(self.tunnel)

    async def start(self) -> None:
        """Serve; on the same port as before, if it was stopped."""
        self._client = aiohttp.ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(application, shutdown_timeout=0.0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def stop(self) -> None:
        """Be gone, with all connections."""
        runner, self._runner = self._runner, None
        client, self._client = self._client, None
        if runner is not None:
            await runner.cleanup()
        if client is not None:
            await client.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._client is not None
        await asyncio.sleep(self.hold)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in {*_HOP, "host"}]
        answer: web.StreamResponse | None = None
        try:
            url, data = f"http://127.0.0.1:{self.target}{request.path_qs}", await request.read()
            timeout = aiohttp.ClientTimeout(sock_read=self.idle)
            asked = self._client.request(request.method, url, headers=headers, data=data, timeout=timeout)
            async with asked as response:
                answer = web.StreamResponse(status=response.status)
                for name, value in response.headers.items():
                    if name.lower() not in {*_HOP, "content-length"}:
                        answer.headers.add(name, value)
                await answer.prepare(request)
                async for chunk in response.content.iter_any():
                    self.bytes += chunk
                    await answer.write(chunk)
                await answer.write_eof()
                return answer
        except (TimeoutError, aiohttp.ClientError):
            self.cuts += 1
            if answer is None:
                return web.Response(status=504, text="upstream timed out")
            if request.transport is not None:
                request.transport.abort()
            return answer


@asynccontextmanager
async def reverse_proxy(idle: float = 3600.0) -> AsyncIterator[ReverseProxy]:
    """One that runs, for as long as the context is open and the test does not stop it."""
    proxy = ReverseProxy(idle)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
