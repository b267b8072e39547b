"""Files of a podman container: odd paths, bounds, and what is not a regular file."""

import asyncio

import pytest
from agent_sandbox.podman import PodmanRuntime
from verifiers.v1.errors import SandboxError

from .conftest import sh

pytestmark = pytest.mark.podman


@pytest.mark.parametrize("path", ["/tmp/a b/$(id)/'q\".txt", "-n", "/tmp/-r/--", "relative/näm\né", "/top"])
async def test_what_is_written_at_an_odd_path_is_read_back(shared_runtime: PodmanRuntime, path: str) -> None:
    data = bytes(range(256)) * 500
    await shared_runtime.write(path, data)
    assert await shared_runtime.read(path) == data
    assert await shared_runtime.read(path, len(data)) == data


async def test_a_large_file_arrives_whole(shared_runtime: PodmanRuntime) -> None:
    data = b"0123456789abcdef" * (1 << 20)
    await shared_runtime.write("/tmp/large", data)
    assert await shared_runtime.read("/tmp/large") == data


async def test_a_file_over_the_limit_is_refused_and_its_rest_stays_inside(shared_runtime: PodmanRuntime) -> None:
    await sh(shared_runtime, "head -c 1000001 /dev/zero >/tmp/over")
    with pytest.raises(SandboxError, match="over the 1000000 byte limit"):
        await shared_runtime.read("/tmp/over", 1_000_000)
    assert len(await shared_runtime.read("/tmp/over", 1_000_001)) == 1_000_001


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
