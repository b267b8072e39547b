"""A server in a thread of its own, for tests that have no event loop, or one each."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from tests.support.prime_api.server import PrimeApi


@contextmanager
def serving_apart(server: PrimeApi) -> Iterator[PrimeApi]:
    """Serve while the context is open."""
    up = Event()
    over: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        ended = asyncio.Event()
        over.append((asyncio.get_running_loop(), ended))
        async with server:
            up.set()
            await ended.wait()

    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(asyncio.run, serve())
        up.wait(60)
        try:
            yield server
        finally:
            loop, ended = over[0]
            loop.call_soon_threadsafe(ended.set)
            serving.result()
