"""A live process in a container, whose three streams pass through `podman exec`."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import RuntimeProcess
from verifiers.v1.utils.aio import run_shielded

from opencode_env.cli_agent.podman import engine
from opencode_env.cli_agent.podman.container import Container

_CHUNK_BYTES = 64 << 10
_ROUNDS = 30
_ROUND_S = 0.1


async def _chunks(stream: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    while stream is not None and (data := await stream.read(_CHUNK_BYTES)):
        yield data


class PodmanProcess(RuntimeProcess):
    """One command of a container with its stdin open.

    Exit codes are those of `podman exec`: 128 and the signal's number for a signal, 127 and 126 for a program that is
    missing or not executable, with the reason on stderr.

    Args:
        container: where it runs.
        command: its identity, by which the warden finds what it started.
        client: the `podman exec` that was started for it.
    """

    def __init__(self, container: Container, command: str, client: asyncio.subprocess.Process) -> None:
        self._container = container
        self._command = command
        self._client = client
        self.stdout, self.stderr = _chunks(client.stdout), _chunks(client.stderr)

    async def write(self, data: bytes) -> None:
        """Write all of `data` to the process's stdin.

        Raises:
            BrokenPipeError: the process ended.
        """
        assert self._client.stdin is not None
        self._client.stdin.write(data)
        await self._client.stdin.drain()

    async def end_input(self) -> None:
        """Close the process's stdin."""
        assert self._client.stdin is not None
        self._client.stdin.close()
        with contextlib.suppress(OSError):  # it ended without reading all
            await self._client.stdin.wait_closed()

    @property
    def is_running(self) -> bool:
        """Whether its `podman exec` has not ended yet."""
        return self._client.returncode is None

    async def wait(self) -> int:
        """Wait for the process's end and return its exit code.

        Raises:
            SandboxError: the container ended first.
        """
        code = await self._client.wait()
        if code != 0:
            self._container.require_alive("a process of it was waited for")
        return code

    async def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._client.returncode

    async def terminate(self) -> None:
        """Send SIGTERM to the process and everything it started."""
        if self._client.returncode is None:
            await self._container.channel.request("signal", self._command, str(int(signal.SIGTERM)))

    async def kill(self) -> None:
        """Kill the process and everything it started; nothing of it is left on return."""
        if self._client.returncode is None:
            await run_shielded(end_command(self._container, self._command, self._client))

    async def release(self) -> None:
        """End the `podman exec`, for a container that is gone; idempotent."""
        await engine.finish(self._client)


async def end_command(container: Container, command: str, client: asyncio.subprocess.Process) -> None:
    """Kill everything that a command started, and its `podman exec`, which may be about to start it."""
    for _ in range(_ROUNDS):
        with contextlib.suppress(SandboxError):  # the container may be gone
            await container.channel.request("end", command)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROUND_S):
                await client.wait()
                return
    await engine.finish(client)
    with contextlib.suppress(SandboxError):
        await container.channel.request("end", command)
