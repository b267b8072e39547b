"""A Python process beside a benchmark's own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that lives as long as the body."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe, limit=1 << 24)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()
