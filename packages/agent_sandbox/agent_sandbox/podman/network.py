"""The network of a container: the paths to the endpoints that verifiers named, and its end when the agent starts.

Invariant: a container whose policy allows nothing has no interface but its loopback while the agent runs, so that only
the endpoints that were handed to `inward` can be reached, and those through sockets that the warden made.
"""

import ipaddress
import json
from urllib.parse import urlsplit

from verifiers.v1.errors import SandboxError

from agent_sandbox.confined.doorway import Doorway
from agent_sandbox.confined.relay import IDLE_SECONDS, MAX_CONNECTIONS
from agent_sandbox.podman import engine
from agent_sandbox.podman.container import Container


class ContainerNetwork:
    """The network of one started container."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._doorway = Doorway(container.channel, container.hosts, most=MAX_CONNECTIONS, idle=IDLE_SECONDS)
        self._cut_from: list[str] = []
        """Names of podman's networks that it was taken from."""

    def inward(self, url: str) -> str:
        """Return the URL at which programs inside reach `url`, a host or remote URL."""
        if self._container.options.restricted or _is_loopback(urlsplit(url).hostname or ""):
            return self._doorway.inward(url)
        return url

    def outward(self, port: int) -> str:
        """Return a host URL that reaches `port` of the container's 127.0.0.1; no port is published for it."""
        return self._doorway.outward(port)

    async def cut(self) -> None:
        """Take the container from every network; idempotent.

        Raises:
            SandboxError: podman refused.
        """
        if self._cut_from:
            return
        names = list(json.loads(await self._podman("inspect", "--format", "{{json .NetworkSettings.Networks}}")))
        for name in names:
            await self._podman("network", "disconnect", name)
            self._cut_from.append(name)

    async def mend(self) -> None:
        """Give back the networks that `cut` took, for a phase in which no agent runs.

        Raises:
            SandboxError: podman refused.
        """
        while self._cut_from:
            await self._podman("network", "connect", self._cut_from[-1])
            self._cut_from.pop()

    async def _podman(self, *argv: str) -> str:
        answer = await engine.call(*argv, self._container.name)
        if answer.exit_code != 0:
            raise SandboxError(f"podman {' '.join(argv)} failed: {answer.stderr.strip()[-500:]}")
        return answer.stdout

    async def close(self) -> None:
        """Close every way; idempotent."""
        await self._doorway.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
