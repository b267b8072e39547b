"""The connections between the sandbox's network and the host's: one relay per origin that verifiers named.

Invariant: from inside only the origins given to `inward` are reachable, from the host only the ports given to
`outward`. An origin keeps its host name and, where it is free inside, its port, so that its URL stays the same.
"""

import asyncio
import ipaddress
import socket
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from rollout_sandbox.confined.channel import Channel
from rollout_sandbox.confined.relay import Relay

_CONNECT_TIMEOUT_S = 30.0
_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_FIRST_NAMED = ipaddress.IPv4Address("127.0.0.2")  # it and those after it stand for remote host names


def _is_local_name(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class NetworkRelays:
    """Owns the relays of one sandbox.

    Args:
        hosts: the file that the sandbox sees, read-only, as /etc/hosts.
        most: connections at once through one relay.
        idle: seconds after which a connection from inside ends that is silent and waits for no answer.
    """

    def __init__(self, channel: Channel, hosts: Path, *, most: int, idle: float | None) -> None:
        self._channel = channel
        self._most = most
        self._idle = idle
        self._hosts = hosts
        self._inward: dict[tuple[str, int], int] = {}
        self._outward: dict[int, int] = {}
        self._names: dict[str, str] = {}
        self._relays: list[Relay] = []

    def inward(self, url: str) -> str:
        """Return the URL at which programs inside reach `url`, a host or remote URL."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
        if not host or port is None:
            return url
        if (host, port) not in self._inward:
            self._inward[host, port] = self._listen_inside(host, port)
        return _with_authority(parts, _host_inside(host), self._inward[host, port])

    def outside(self, url: str) -> str:
        """Return the URL that `inward` has made this one of; another one as it is."""
        parts = urlsplit(url)
        for (host, port), inside in self._inward.items():
            if inside == parts.port and parts.hostname == _host_inside(host):
                return _with_authority(parts, host, port)
        return url

    def _listen_inside(self, host: str, port: int) -> int:
        (fd,) = self._channel.request_blocking("socket").fds
        listener = socket.socket(fileno=fd)
        address = self._address_of(host)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError:  # taken by a program inside
            listener.bind((address, 0))
        listener.listen()
        self._relays.append(Relay(listener, partial(_connect, host, port), most=self._most, idle=self._idle))
        return int(listener.getsockname()[1])

    def _address_of(self, host: str) -> str:
        if _is_local_name(host) or _is_address(host):
            return "127.0.0.1"
        if host not in self._names:
            address = str(_FIRST_NAMED + len(self._names))
            with self._hosts.open("a") as file:
                file.write(f"{address} {host}\n")
            self._names[host] = address
        return self._names[host]

    def outward(self, port: int) -> str:
        """Return a host URL that reaches `port` of the sandbox's 127.0.0.1."""
        if port not in self._outward:
            listener = socket.create_server(("127.0.0.1", 0))

            async def dial() -> socket.socket:
                (fd,) = (await self._channel.request("socket")).fds
                return await _connected(socket.socket(fileno=fd), ("127.0.0.1", port))

            self._relays.append(Relay(listener, dial, most=self._most))
            self._outward[port] = listener.getsockname()[1]
        return f"http://127.0.0.1:{self._outward[port]}"

    async def close(self) -> None:
        for relay in self._relays:
            await relay.close()


def _host_inside(host: str) -> str:
    return "127.0.0.1" if _is_address(host) else host


def _with_authority(parts: SplitResult, host: str, port: int) -> str:
    userinfo, at, _ = parts.netloc.rpartition("@")
    explicit = f":{port}" if parts.port is not None or port != _DEFAULT_PORTS.get(parts.scheme) else ""
    return parts._replace(netloc=f"{userinfo}{at}{host}{explicit}").geturl()


async def _connected(sock: socket.socket, address: tuple[str, int]) -> socket.socket:
    """Connect `sock`, which stays the caller's only on success."""
    try:
        sock.setblocking(False)
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect(host: str, port: int) -> socket.socket:
    name = "localhost" if _is_local_name(host) else host
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(found, 1):
        try:
            return await _connected(socket.socket(family, kind, protocol), (str(address[0]), port))
        except OSError:
            if number == len(found):
                raise
    raise OSError(f"{host} has no address")
