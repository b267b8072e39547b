"""Byte relays between a listening socket and one fixed destination, on the host's event loop.

Invariant: whoever connects reaches that destination and nothing else. Half-closes and back-pressure pass through, and
`close` leaves no socket and no task.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import cast

from verifiers.v1.errors import SandboxError

MAX_CONNECTIONS = 128
"""Per relay: the agent may open connections at will, and each costs the host two descriptors."""

IDLE_SECONDS = 600.0
"""How long a connection may be silent on which nobody waits for an answer."""

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
        """Both sides are there: pass on what came early, and go on reading."""
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


class Relay:
    """Serves `listener`; every connection is joined to a fresh one made by `dial`. Owns the listener.

    Args:
        dial: connects to the destination.
        most: connections at once; more are closed at once.
        idle: seconds after which a silent connection ends that waits for no answer; None is never.
    """

    def __init__(
        self, listener: socket.socket, dial: Dial, *, most: int = MAX_CONNECTIONS, idle: float | None = None
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._dial = dial
        self._loop = asyncio.get_running_loop()
        self._joining: set[asyncio.Task[None]] = set()
        self._ends: set[_End] = set()
        self._most = most
        self._idle = idle
        self._sweeping: asyncio.TimerHandle | None = None
        self._pairs: dict[_End, float] = {}
        """When each connection was joined, by its near end."""
        self._sweep()
        self._loop.add_reader(listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone again, or out of descriptors: the listener stays
            return
        if len(self._joining) + len(self._ends) // 2 >= self._most:
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._join(connection))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _join(self, near: socket.socket) -> None:
        try:
            far = await self._dial()
        except (OSError, SandboxError):  # the destination is not there; the client sees its connection close
            near.close()
            return
        except BaseException:
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
