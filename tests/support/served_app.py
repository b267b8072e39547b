"""A web application of a test's own, on a free port of the loopback; and what this process's sockets are set to."""

import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Its URL, without a slash at the end."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def no_delay(port: int) -> list[int]:
    """TCP_NODELAY of this process's sockets at a port of its own: the one that listens, and its connections."""
    return [
        known.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for known in gc.get_objects()
        if type(known) is socket.socket
        and known.fileno() >= 0
        and known.family == socket.AF_INET
        and known.getsockname()[1] == port
    ]
