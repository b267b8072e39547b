"""Files of a podman container: odd paths, bounds, and what is not a regular file."""

import asyncio

import pytest
from rollout_sandbox.podman import PodmanRuntime
from verifiers.v1.errors import SandboxError

from .conftest import sh

pytestmark = pytest.mark.podman


async def test_a_replaced_head_cannot_fill_the_hosts_memory(runtime: PodmanRuntime) -> None:
    await sh(runtime, "touch /tmp/small; printf '#!/bin/sh\\nexec cat /dev/zero\\n' >/usr/bin/head")
    async with asyncio.timeout(100):
        with pytest.raises(SandboxError, match="over the 1000 byte limit"):
            await runtime.read("/tmp/small", 1000)


@pytest.mark.parametrize(
    ("make", "path", "reason"),
    [
        ("true", "/tmp/missing", "no such file"),
        ("mkdir /tmp/dir", "/tmp/dir", "not a regular file"),
        ("mkfifo /tmp/fifo", "/tmp/fifo", "not a regular file"),
        ("true", "/dev/zero", "not a regular file"),
    ],
)
async def test_what_is_no_regular_file_is_not_waited_for(
    shared_runtime: PodmanRuntime, make: str, path: str, reason: str
) -> None:
    await sh(shared_runtime, make)
    async with asyncio.timeout(100):
        with pytest.raises(SandboxError, match=reason):
            await shared_runtime.read(path)
        if "missing" not in path:
            with pytest.raises(SandboxError, match=reason):
                await shared_runtime.write(path, b"x")


async def test_a_full_disk_is_an_error(shared_runtime: PodmanRuntime) -> None:
    with pytest.raises(SandboxError, match=r"write '/dev/full'|No space left|not a regular file"):
        await shared_runtime.write("/dev/full", b"x" * 10_000)
