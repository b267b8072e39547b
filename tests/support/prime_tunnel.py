"""Stands in for `prime_tunnel.Tunnel`, the public class of the SDK that verifiers' Prime tunnel drives.

The real one downloads a program, which cannot be had here. This one forwards on the loopback what the real one forwards
through Prime; its methods and properties are those that `verifiers.v1.interception.tunnel.prime` uses.
"""

from types import SimpleNamespace
from typing import ClassVar

from tests.support.reverse_proxy import ReverseProxy


class LoopbackTunnel:
    """One tunnel. Those that were started are in `opened`."""

    opened: ClassVar[list["LoopbackTunnel"]] = []

    def __init__(self, local_port: int) -> None:
        self.proxy = ReverseProxy(target=local_port)
        self.stopped = False
        self.is_gone = False

    @property
    def is_running(self) -> bool:
        """Whether its program runs: it does not say whether anything gets through."""
        return not self.stopped

    async def start(self) -> str:
        """Open it; its URL."""
        await self.proxy.start()
        self.opened.append(self)
        return self.proxy.url

    async def restart(self) -> str:
        """Open it again."""
        raise AssertionError("verifiers looks every 20 s whether it is to be started again; no test takes so long")

    async def status(self) -> SimpleNamespace:
        """What the service says."""
        return SimpleNamespace(registration="connected")

    def sync_stop(self) -> None:
        """Close it."""
        self.stopped = True
