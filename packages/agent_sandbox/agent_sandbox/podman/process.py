"""A live process in a container, whose three streams pass through `podman exec`."""

import asyncio
import contextlib
import signal

from verifiers.v1.errors import SandboxError
from verifiers.v1.utils.aio import run_shielded

from agent_sandbox.confined.process import PipedProcess
from agent_sandbox.podman import engine
from agent_sandbox.podman.container import Container

_ROUNDS = 30
_ROUND_S = 0.1


class PodmanProcess(PipedProcess):
    """One command of a container with its stdin open.

    Exit codes are those of `podman exec`: 128 and the signal's number for a signal, 127 and 126 for a program that is
    missing or not executable, with the reason on stderr.

    Args:
        command: its identity, by which the supervisor finds what it started.
        client: the `podman exec` that was started for it.
        fds: our ends of stdin, stdout, stderr; owned from now on.
    """

    def __init__(
        self, container: Container, command: str, client: asyncio.subprocess.Process, fds: tuple[int, int, int]
    ) -> None:
        super().__init__(fds)
        self._container = container
        self._command = command
        self._client = client

    async def wait(self) -> int:
        code = await self._client.wait()
        if code != 0:
            self._container.require_alive("a process of it was waited for")
        return code

    async def poll(self) -> int | None:
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
        """End the `podman exec` of a process that is over or whose container is gone, and its streams; idempotent."""
        await engine.finish(self._client)
        self.close()


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
