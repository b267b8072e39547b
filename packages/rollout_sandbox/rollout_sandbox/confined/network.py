"""The connections between the sandbox's network and the host's: one relay of bytes per origin that verifiers named.

From inside only the origins given to `inward` are reachable, from the host only the ports given to `outward`. An origin
keeps its host name and, where it is free inside, its port, so that its URL stays the same. Half-closes and
back-pressure pass through; `close` leaves no socket and no task.
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import SplitResult, urlsplit

from rollout_sandbox.confined.channel import Channel

MAX_CONNECTIONS = 128
"""Per relay: the agent may open connections at will, and each costs the host two descriptors."""

IDLE_SECONDS = 600.0
"""How long a connection may be silent on which nobody waits for an answer."""

_SHORTAGE_SECONDS = 30.0
"""How long a connection waits while this machine has no descriptor, port, memory or thread for its other side."""
_SHORTAGES = {
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL),
    *(socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM),
}

logger = logging.getLogger("verifiers.v1.rollout_sandbox.confined")

Dial = Callable[[], Awaitable[socket.socket]]
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _End(asyncio.Protocol):
    """One side of a connection; bytes that arrive go to `peer`, which it has before it is connected."""

    peer: "_End"

    def __init__(self, on_lost: Callable[["_End"], None]) -> None:
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self._ended = False
        self._joined = False
        self.last_data = 0.0
        """When it last said something, on the loop's clock; 0 = never."""
        self._early = bytearray()
        """What came before both sides were there: Python 3.11.2 reads on although `connection_made` paused it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's have another base
        self.transport.pause_reading()  # until both sides are there

    def data_received(self, data: bytes) -> None:
        self.last_data = self._loop.time()
        if not self._joined:
            self._early += data
        elif self.peer.transport is not None:
            self.peer.transport.write(data)

    def joined(self) -> None:
        """Pass on what came early, and go on reading, once both sides are there."""
        self._joined = True
        if self._early:
            self.data_received(bytes(self._early))
            self._early.clear()
        if self._ended:
            self.eof_received()
        elif self.transport is not None:
            self.transport.resume_reading()
        elif self.peer.transport is not None:
            self.peer.transport.close()  # this side was lost in the meantime

    def eof_received(self) -> bool:
        self._ended = True
        if self._joined and self.peer.transport is not None:
            with contextlib.suppress(OSError):
                self.peer.transport.write_eof()
            if self.peer._ended:
                self.peer.transport.close()
                return False
        return True  # the other direction goes on

    def pause_writing(self) -> None:
        if self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer.transport is not None:
            if exc is None:
                self.peer.transport.close()
            else:
                self.peer.reset()
        self.transport = None
        self._on_lost(self)

    def reset(self) -> None:
        """Drop the connection with a reset: a cut answer must not look complete."""
        if self.transport is not None:
            with contextlib.suppress(OSError):
                sock = self.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()


def _is_shortage(error: BaseException) -> bool:
    """Whether it is for want of something that others hold for now; a thread's start says it in words alone."""
    return type(error) is RuntimeError or (isinstance(error, OSError) and error.errno in _SHORTAGES)


class Relay:
    """Serves `listener`, which it owns; every connection is joined to a fresh one made by `dial`, to `destination`.
    After `idle` seconds a silent connection ends that waits for no answer; None is never. The log names, once each, the
    failures that a connection was closed for, but those of a destination that is `inside`, where programs may end."""

    def __init__(
        self,
        listener: socket.socket,
        dial: Dial,
        destination: str,
        *,
        inside: bool = False,
        idle: float | None = None,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._dial = dial
        self._destination = destination
        self._inside = inside
        self._told: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._joining: set[asyncio.Task[None]] = set()
        self._ends: set[_End] = set()
        self._idle = idle
        self._sweeping: asyncio.TimerHandle | None = None
        self._pairs: dict[_End, float] = {}
        """When each connection was joined, by its near end."""
        self._sweep()
        self._loop.add_reader(listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:  # gone again, or out of descriptors: the listener stays
            if _is_shortage(error) and not isinstance(error, BlockingIOError):
                self._tell(f"waits: {error}")
            return
        if len(self._joining) + len(self._ends) // 2 >= MAX_CONNECTIONS:
            connection.close()
            self._tell(f"is closed: there are {MAX_CONNECTIONS}")
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._join(connection))
        self._joining.add(task)
        task.add_done_callback(self._end_joining)

    def _end_joining(self, task: asyncio.Task[None]) -> None:
        self._joining.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and (not self._inside or _is_shortage(error)):
            self._tell(f"is closed: {type(error).__name__}: {error}")

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning("a connection of the sandbox's to %s %s", self._destination, what)

    async def _dialled(self) -> socket.socket:
        """Dial, again while it fails for a shortage: nothing has been read of the connection that it is for."""
        deadline = self._loop.time() + _SHORTAGE_SECONDS
        while True:
            try:
                return await self._dial()
            except (OSError, RuntimeError) as error:
                if not _is_shortage(error) or self._loop.time() > deadline:
                    raise
            await asyncio.sleep(0.05)

    async def _join(self, near: socket.socket) -> None:
        try:
            far = await self._dialled()
        except BaseException:  # the client sees its connection close
            near.close()
            raise
        ends = (_End(self._ends.discard), _End(self._ends.discard))
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        self._ends.update(ends)
        try:
            for end, sock in zip(ends, (near, far), strict=True):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.connect_accepted_socket(lambda end=end: end, sock)  # type: ignore[misc]
        except BaseException:
            for end, sock in zip(ends, (near, far), strict=True):
                end.reset()
                sock.close()
                self._ends.discard(end)
            raise
        self._pairs[ends[0]] = self._loop.time()
        for end in ends:
            end.joined()

    def _sweep(self) -> None:
        if self._idle is None:
            return
        now = self._loop.time()
        self._pairs = {near: joined for near, joined in self._pairs.items() if near in self._ends}
        for near, joined in self._pairs.items():
            answered = near.peer.last_data
            waiting = near.last_data > answered
            if not waiting and now - max(joined, answered) > self._idle and near.transport is not None:
                near.transport.close()
        self._sweeping = self._loop.call_later(self._idle / 4, self._sweep)

    async def close(self) -> None:
        """Stop listening and drop every connection; idempotent."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._idle = None
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
        joining = list(self._joining)
        for task in joining:
            task.cancel()
        await asyncio.gather(*joining, return_exceptions=True)
        for end in list(self._ends):
            end.reset()


_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_FIRST_NAMED = ipaddress.IPv4Address("127.0.0.2")  # it and those after it stand for remote host names


def _is_local_name(host: str) -> bool:
    name = host.lower().rstrip(".")
    return name == "localhost" or name.endswith(".localhost")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is in any of its spellings, as `127.1` is one; None: it is a name."""
    plain = host.strip("[]").rstrip(".")
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(plain))
        except (OSError, ValueError):
            return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Return whether only programs of its machine reach who listens at this host."""
    address = _address(host)
    return _is_local_name(host) if address is None else address.is_loopback


def is_own_machine(host: str) -> bool:
    """Return whether a URL with this host leads each machine to itself, as the address of no interface does too."""
    address = _address(host)
    return is_loopback(host) or (address is not None and address.is_unspecified)


class NetworkRelays:
    """Owns the relays of one sandbox, which sees the file `hosts`, read-only, as /etc/hosts. Both are asked for once it
    is started, and raise a `SandboxError` before."""

    def __init__(self, channel: Callable[[], Channel], hosts: Callable[[], Path]) -> None:
        self._channel = channel
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
            (fd,) = self._channel().request_blocking("socket").fds
            listener = socket.socket(fileno=fd)
            address = self._address_of(host)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
            except OSError:  # taken by a program inside
                listener.bind((address, 0))
            listener.listen()
            self._relays.append(Relay(listener, partial(_connect, host, port), f"{host}:{port}", idle=IDLE_SECONDS))
            self._inward[host, port] = int(listener.getsockname()[1])
        return _with_authority(parts, _host_inside(host), self._inward[host, port])

    def outside(self, url: str) -> str:
        """Return the URL that `inward` has made this one of; another one as it is."""
        parts = urlsplit(url)
        for (host, port), inside in self._inward.items():
            if inside == parts.port and parts.hostname == _host_inside(host):
                return _with_authority(parts, host, port)
        return url

    def _address_of(self, host: str) -> str:
        if _is_local_name(host) or _address(host) is not None:
            return "127.0.0.1"
        if host not in self._names:
            address = str(_FIRST_NAMED + len(self._names))
            with self._hosts().open("a") as file:
                file.write(f"{address} {host}\n")
            self._names[host] = address
        return self._names[host]

    def outward(self, port: int) -> str:
        """Return a host URL that reaches `port` of the sandbox's 127.0.0.1."""
        if port not in self._outward:
            channel, listener = self._channel(), socket.create_server(("127.0.0.1", 0))

            async def dial() -> socket.socket:
                (fd,) = (await channel.request("socket")).fds
                return await _connected(socket.socket(fileno=fd), ("127.0.0.1", port))

            self._relays.append(Relay(listener, dial, f"its port {port}", inside=True))
            self._outward[port] = listener.getsockname()[1]
        return f"http://127.0.0.1:{self._outward[port]}"

    async def close(self) -> None:
        for relay in self._relays:
            await relay.close()


def _host_inside(host: str) -> str:
    return host if _address(host) is None else "127.0.0.1"


def _with_authority(parts: SplitResult, host: str, port: int) -> str:
    userinfo, at, _ = parts.netloc.rpartition("@")
    explicit = f":{port}" if parts.port is not None or port != _DEFAULT_PORTS.get(parts.scheme) else ""
    name = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{userinfo}{at}{name}{explicit}").geturl()


async def _connected(sock: socket.socket, address: tuple[str, int]) -> socket.socket:
    """Connect `sock`, which stays the caller's only on success."""
    try:
        sock.setblocking(False)
        async with asyncio.timeout(30.0):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect(host: str, port: int) -> socket.socket:
    name = "localhost" if _is_local_name(host) else host
    if _address(name) is not None:  # needs no thread, which a busy machine may not have
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    else:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(found, 1):
        try:
            return await _connected(socket.socket(family, kind, protocol), (str(address[0]), port))
        except OSError:
            if number == len(found):
                raise
    raise OSError(f"{host} has no address")
