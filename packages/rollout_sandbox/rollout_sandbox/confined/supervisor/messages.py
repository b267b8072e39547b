"""The control socket: its wire format, used by both ends, and the end that answers.

One SOCK_SEQPACKET message is one request or one reply: fields that hold no NUL byte, joined by NUL, with file
descriptors attached. A message too long for the socket travels in a memfd of its own, ahead of those descriptors.
"""

from __future__ import annotations

import _socket  # the C half of `socket`, without the 6 ms of `enum`
import errno
import os
import sys

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_INLINE_BYTES = 60_000
MAX_FDS = 8
_IN_MEMFD = b"\0"
_FD_BYTES = 4
_CREDENTIALS_BYTES = 12


class Message:
    """A received message: `fields` is empty at the end of the stream; `sender` is a pid, 0 when not asked for."""

    __slots__ = ("fds", "fields", "sender")

    def __init__(self, fields: list[bytes], fds: list[int], sender: int) -> None:
        self.fields = fields
        self.fds = fds
        self.sender = sender


def memfd(data: bytes) -> int:
    """Return a descriptor of an anonymous file that holds `data`, positioned at its start."""
    fd = os.memfd_create("vf", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def send(sock: _socket.socket, fields: Iterable[bytes], fds: Sequence[int] = ()) -> None:
    """Send one message; the caller keeps its descriptors. A `BlockingIOError`: a non-blocking socket is full."""
    payload = b"\0".join(fields)
    spilled = memfd(payload) if len(payload) > MAX_INLINE_BYTES else None
    try:
        if spilled is not None:
            payload, fds = _IN_MEMFD, [spilled, *fds]
        rights = b"".join(fd.to_bytes(_FD_BYTES, sys.byteorder) for fd in fds)
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if rights else []
        sock.sendmsg([payload], ancillary, _socket.MSG_NOSIGNAL)
    finally:
        if spilled is not None:
            os.close(spilled)


def receive(sock: _socket.socket) -> Message:
    """Receive one message, with descriptors that are the caller's. A `BlockingIOError`: nothing is there yet."""
    space = _socket.CMSG_SPACE(MAX_FDS * _FD_BYTES) + _socket.CMSG_SPACE(_CREDENTIALS_BYTES)
    payload, ancillary, _, _ = sock.recvmsg(MAX_INLINE_BYTES + 1, space, _socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    sender = 0
    for _level, kind, data in ancillary:
        if kind == _socket.SCM_RIGHTS:
            whole = len(data) - len(data) % _FD_BYTES
            fds += [int.from_bytes(data[at : at + _FD_BYTES], sys.byteorder) for at in range(0, whole, _FD_BYTES)]
        elif kind == _socket.SCM_CREDENTIALS:
            sender = int.from_bytes(data[:4], sys.byteorder)
    if payload == _IN_MEMFD and fds:
        with os.fdopen(fds.pop(0), "rb") as spilled:
            payload = spilled.read()
    return Message(payload.split(b"\0") if payload else [], fds, sender)


class MessageServer:
    """Answers requests: one of the kind NAME by `on_NAME`, with the text that it returns, or by itself (None)."""

    def __init__(self, control: _socket.socket) -> None:
        self._control = control

    def serve(self) -> bool:
        """Answer the next request; False when the host is gone. The request's descriptors are closed afterwards."""
        message = receive(self._control)
        if not message.fields:
            return False
        kind, identifier, *rest = message.fields
        try:
            text = getattr(self, f"on_{kind.decode()}")(identifier, rest, message.fds)
            if text is not None:
                self.reply(identifier, b"ok", text)
        except OSError as error:
            status = b"busy" if error.errno == errno.ETOOMANYREFS else b"error"
            self.reply(identifier, status, (error.strerror or str(error)).encode())
        finally:
            for fd in message.fds:
                os.close(fd)
        return True

    def reply(self, identifier: bytes, status: bytes, text: bytes = b"", fds: Sequence[int] = ()) -> None:
        send(self._control, (identifier, status, text), fds)

    def on_socket(self, identifier: bytes, fields: list[bytes], fds: list[int]) -> None:
        """A socket belongs for ever to the network it was made in, so the host binds or connects it by itself."""
        fds.append(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM).detach())
        self.reply(identifier, b"ok", fds=fds[-1:])
