"""The host's end of the control socket: requests to process 1, each answered once, and the files that cross it.

A request ends in its reply, or in a SandboxError when the sandbox refuses or is gone; no descriptor that crosses the
socket is lost, whoever was cancelled meanwhile. Process 1 resolves paths, inside; what crosses is a descriptor of a
regular file (reading) or of an anonymous one (writing).
"""

import asyncio
import errno
import itertools
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from verifiers.v1.errors import SandboxError

from rollout_sandbox.confined.supervisor import messages
from rollout_sandbox.confined.supervisor.messages import memfd
from rollout_sandbox.toolbox.scoring import exempt

_BLOCKING_TIMEOUT_S = 10.0
_BUSY_TIMEOUT_S = 30.0
"""How long too many descriptors on the way, which the kernel counts for all processes of a user, are waited out."""
_BUSY_PAUSE_S = 0.05


class _Busy(SandboxError):
    """Too many descriptors of the sandbox's user are on the way for the answer's to be sent."""


@dataclass(frozen=True)
class ChannelReply:
    """Holds what process 1 answered; the descriptors belong to whoever gets the reply."""

    text: str
    fds: tuple[int, ...]


def _encode(field: str | bytes) -> bytes:
    data = os.fsencode(field)
    if b"\0" in data:
        raise ValueError(f"a NUL byte cannot cross into the sandbox: {field!r}")
    return data


def _close_all(fds: tuple[int, ...] | list[int]) -> None:
    for fd in fds:
        os.close(fd)


class Channel:
    """Multiplexes requests over one socket, which it owns, on the running event loop."""

    def __init__(self, sock: socket.socket, describe_loss: Callable[[], str]) -> None:
        self._sock = sock
        self._describe_loss = describe_loss
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._pending: dict[bytes, asyncio.Future[ChannelReply]] = {}
        self._unsent: deque[tuple[tuple[bytes, ...], tuple[int, ...]]] = deque()
        self._blocked: asyncio.TimerHandle | None = None
        self._blocked_since = 0.0
        self.is_open = True
        """Whether process 1 is still there, as far as is known."""
        self.ready: asyncio.Future[ChannelReply] = self._expect(b"0")
        self.process_one = 0
        """The host's pid of process 1, known once `ready` is done."""
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def _expect(self, identifier: bytes) -> asyncio.Future[ChannelReply]:
        future: asyncio.Future[ChannelReply] = self._loop.create_future()
        # A background command's reply may never be awaited; its error is not lost, every later request repeats it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._pending[identifier] = future
        return future

    def submit(
        self, kind: str, *fields: str | bytes, fds: tuple[int, ...] = ()
    ) -> tuple[str, asyncio.Future[ChannelReply]]:
        """Send a request; its id and its future reply. `fds` are closed once sent. A NUL byte is a `ValueError`."""
        try:
            if not self.is_open:
                raise exempt(SandboxError(self._describe_loss()))
            identifier = next(self._ids)
            encoded = (kind.encode(), b"%d" % identifier, *map(_encode, fields))
        except BaseException:
            _close_all(fds)
            raise
        future = self._expect(encoded[1])
        self._unsent.append((encoded, fds))
        if len(self._unsent) == 1:
            self._flush()
        return str(identifier), future

    async def request(self, kind: str, *fields: str | bytes, fds: tuple[int, ...] = ()) -> ChannelReply:
        """Send a request and wait for its reply; one that could not be sent for the moment is asked for again."""
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
        while True:
            future = self.submit(kind, *fields, fds=fds)[1]
            try:
                return await future
            except _Busy:
                if time.monotonic() > deadline:
                    raise
            except asyncio.CancelledError:
                # The reply may have come in the same iteration of the loop as the cancellation.
                if future.done() and not future.cancelled() and future.exception() is None:
                    _close_all(future.result().fds)
                raise
            await asyncio.sleep(_BUSY_PAUSE_S)

    def request_blocking(self, kind: str) -> ChannelReply:
        """Request as `request` does, for callers that cannot await: it blocks the event loop for a round trip (below 1
        ms; 10 s at the most, then it is a `SandboxError`)."""
        deadline = time.monotonic() + _BLOCKING_TIMEOUT_S
        while True:
            future = self.submit(kind)[1]
            while not future.done():
                left = deadline - time.monotonic()
                if left <= 0:
                    future.cancel()
                    raise SandboxError(f"the sandbox did not answer {kind!r} within {_BLOCKING_TIMEOUT_S:g} s")
                poller = select.poll()
                waiting = self._unsent and self._blocked is None
                poller.register(self._sock, select.POLLIN | (select.POLLOUT if waiting else 0))
                poller.poll(min(left, _BUSY_PAUSE_S if self._blocked else left) * 1000)
                self._flush()
                self._on_readable()
            try:
                return future.result()
            except _Busy:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_BUSY_PAUSE_S)

    def _flush(self) -> None:
        while self._unsent and self.is_open:
            fields, fds = self._unsent[0]
            try:
                messages.send(self._sock, fields, fds)
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    self.close()
                    return
                if self._wait_for_room():
                    return
                self._refuse(fields[1], error)
            self._unsent.popleft()
            _close_all(fds)
            self._blocked_since = 0.0
        if self.is_open:
            self._loop.remove_writer(self._sock.fileno())

    def _wait_for_room(self) -> bool:
        """Try again in a moment: other processes of the host's user have too many descriptors on the way."""
        now = time.monotonic()
        self._blocked_since = self._blocked_since or now
        if now - self._blocked_since > _BUSY_TIMEOUT_S:
            return False
        self._loop.remove_writer(self._sock.fileno())
        if self._blocked is None:
            self._blocked = self._loop.call_later(_BUSY_PAUSE_S, self._try_again)
        return True

    def _try_again(self) -> None:
        self._blocked = None
        self._flush()

    def _refuse(self, identifier: bytes, error: OSError) -> None:
        future = self._pending.pop(identifier)
        if not future.done():
            why = f"{error.strerror} for {_BUSY_TIMEOUT_S:g} s, in all processes of this user: raise its ulimit -n"
            future.set_exception(exempt(SandboxError(why)))

    def _on_readable(self) -> None:
        while self.is_open:
            try:
                message = messages.receive(self._sock)
            except BlockingIOError:
                return
            except OSError:
                message = messages.Message([], [], 0)
            if not message.fields:
                self.close()
                return
            identifier, status, text = message.fields
            self.process_one = message.sender
            future = self._pending.pop(identifier, None)
            if future is None or future.done():
                _close_all(message.fds)
            elif status not in (b"ok", b"ready"):
                kind = _Busy if status == b"busy" else SandboxError
                future.set_exception(kind(text.decode(errors="replace")))
            else:
                future.set_result(ChannelReply(text.decode(errors="replace"), tuple(message.fds)))

    def close(self) -> None:
        """Close the socket, which ends the sandbox, and fail what is pending; idempotent, on the event loop."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        if self._blocked is not None:
            self._blocked.cancel()
        while self._unsent:
            _close_all(self._unsent.popleft()[1])
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(exempt(SandboxError(self._describe_loss())))


READ_LIMIT_BYTES = 256 << 20
"""The most that a read without `max_bytes` takes into the host's memory."""
_INLINE_BYTES = 1 << 20


def _read_and_close(fd: int, limit: int) -> bytes:
    data = bytearray()
    try:
        while len(data) < limit and (chunk := os.read(fd, min(_INLINE_BYTES, limit - len(data)))):
            data += chunk
    finally:
        os.close(fd)
    return bytes(data)


async def read_file(channel: Channel, path: str, max_bytes: int | None) -> bytes:
    """Return the first `max_bytes` bytes of a regular file, or all of it if that is at most `READ_LIMIT_BYTES`."""
    try:
        (fd,) = (await channel.request("read", path)).fds
    except SandboxError as error:
        raise SandboxError(f"read {path!r}: {error}") from error
    limit = READ_LIMIT_BYTES + 1 if max_bytes is None else max_bytes
    if os.fstat(fd).st_size > _INLINE_BYTES:
        data = await asyncio.to_thread(_read_and_close, fd, limit)
    else:
        data = _read_and_close(fd, min(limit, READ_LIMIT_BYTES + 1))
    if max_bytes is None and len(data) > READ_LIMIT_BYTES:
        raise SandboxError(f"read {path!r}: over {READ_LIMIT_BYTES} bytes; give max_bytes")
    return data


async def read_answer(channel: Channel, path: str, max_bytes: int) -> bytes | str:
    """Return the content of the regular file at the absolute `path`, or in one word why there is none to be had:
    `absent`, `symlink`, `not_a_file`, `unreadable`, `oversized` (more than `max_bytes`)."""
    reply = await channel.request("answer", path)
    if reply.text:
        return reply.text
    (fd,) = reply.fds
    data = await asyncio.to_thread(_read_and_close, fd, max_bytes + 1)
    return data if len(data) <= max_bytes else "oversized"


async def write_file(channel: Channel, path: str, data: bytes) -> None:
    """Replace the file at `path`, not what a symlink there points to, with mode 0644; make its parents."""
    try:
        source = memfd(data) if len(data) <= _INLINE_BYTES else await asyncio.to_thread(memfd, data)
        await channel.request("write", path, fds=(source,))
    except (SandboxError, OSError) as error:
        raise SandboxError(f"write {path!r}: {error}") from error
