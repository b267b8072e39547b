"""A Python process beside a benchmark's own, what it answers, and the CPU that it used."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


@asynccontextmanager
async def process(
    *arguments: str, env: Mapping[str, str] | None = None, python: str = sys.executable
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that lives as long as the body; without variables of its own it has this process's."""
    argv, pipe = (python, *arguments), asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=1 << 24, env=env)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


async def ask(child: asyncio.subprocess.Process, what: str) -> dict[str, Any]:
    """A child's answer, one line of JSON, to an order, which is one line of text."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(what.encode() + b"\n")
    said: dict[str, Any] = json.loads(await child.stdout.readline())
    return said


def cpu_seconds(pid: int, *, ended: bool = False) -> float:
    """What a process used, without its children, or with those that `ended` and were waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended else 13])) / os.sysconf("SC_CLK_TCK")
