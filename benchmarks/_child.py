"""A Python process beside a benchmark's own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager


@asynccontextmanager
async def process(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that lives as long as the body; without variables of its own it has this process's."""
    argv, pipe = (sys.executable, *arguments), asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=1 << 24, env=env)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()
