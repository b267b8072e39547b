"""What stands in front of OpenEnv's application: who may call, and what becomes of a call whose caller is gone.

A browser's page is never served, wherever it comes from: it could send the user's own loopback server commands. One
whose own name was made to lead here says nothing of itself in some requests, so without a token the server answers to
no names but `localhost`.
"""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
_GOODBYE_SECONDS = 1.0
"""How long an application whose caller is gone may take to end by itself."""
_POLICY_VIOLATION = 1008
ALL = 4


def refusal(scope: Message, token: str | None) -> str:
    """Return why a caller is refused; empty if they are not."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    if "origin" in headers:
        return "pages in a browser are not served"
    if scope.get("path") == "/health":  # it tells nothing, and whoever starts a container waits for it
        return ""
    if token is None:
        by_address = _is_address(headers.get("host", ""))
        return "" if by_address else "a page in a browser could come by a name: call an address, or set a token"
    given = _given_token(headers.get("authorization", ""))
    if given is None or not hmac.compare_digest(given.encode(), token.encode()):
        return "this server asks for a token: Authorization: Bearer TOKEN, or http://openenv:TOKEN@host:port"
    return ""


def _is_address(host: str) -> bool:
    """Whether a Host header is not a name that somebody else could make lead here."""
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) else host
    if "%" in name:  # behind a zone's sign may stand anything
        return False
    try:
        return name.lower() == "localhost" or bool(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return False


def _given_token(authorization: str) -> str | None:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None


class GuardedApplication:
    """An ASGI application behind the guard; callers must send the `token`, if there is one. A connection may hold
    `max_bytes` here (a request's body, or messages that wait to be read), and all together `ALL` times as much."""

    def __init__(self, application: Application, token: str | None, max_bytes: int) -> None:
        self._application = application
        self._token = token
        self._max_bytes = max_bytes
        self._open: set[GuardedConnection] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
        elif why := refusal(scope, self._token):
            await _refuse(scope, receive, send, 403 if "browser" in why else 401, why)
        elif _declared(scope) > self._max_bytes:
            await _refuse(scope, receive, send, 413, f"a body has at most {self._max_bytes} bytes here")
        else:
            connection = GuardedConnection(receive, self._has_room)
            self._open.add(connection)
            try:
                await connection.serve(self._application, scope, send)
            finally:
                self._open.discard(connection)

    def _has_room(self, connection: "GuardedConnection") -> bool:
        held = sum(one.held for one in self._open)
        return connection.held <= self._max_bytes and held <= ALL * self._max_bytes

    async def answered(self, seconds: float) -> None:
        """Wait until every open connection waits for its caller, for so many seconds at most."""
        waiting = [asyncio.ensure_future(connection.idle.wait()) for connection in self._open]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=seconds)
            for one in late:
                one.cancel()


class GuardedConnection:
    """One connection: what its caller sends is read ahead, so that their end is seen while the application works."""

    def __init__(self, receive: Receive, has_room: Callable[["GuardedConnection"], bool]) -> None:
        self._receive = receive
        self._has_room = has_room
        self.held = 0
        """Bytes of a body, or of messages that wait."""
        self._ahead: asyncio.Queue[Message] = asyncio.Queue()
        self._gone = False
        """Whether nobody reads any more what the application sends."""
        self.idle = asyncio.Event()
        """Set while the application waits for the caller."""

    async def serve(self, application: Application, scope: Message, send: Send) -> None:
        """Run the application; it is cancelled when the caller goes away while it works, and it does not end."""

        async def send_if_there(message: Message) -> None:
            # OpenEnv says goodbye to callers that are gone, too, and would end with an error when it cannot.
            if not self._gone:
                try:
                    await send(message)
                except OSError:
                    self._gone = True

        work = asyncio.ensure_future(application(scope, self._next, send_if_there))
        watch = asyncio.ensure_future(self._read_ahead())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not self.idle.is_set():
                # A caller that says goodbye goes, too: cancelled then, OpenEnv would give the session up half closed.
                await asyncio.wait({work}, timeout=_GOODBYE_SECONDS)
                work.cancel()
            await asyncio.wait({work})
        finally:
            watch.cancel()
            work.cancel()
            await asyncio.gather(watch, work, return_exceptions=True)
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error

    async def _next(self) -> Message:
        if self._ahead.empty():
            self.idle.set()
        try:
            message = await self._ahead.get()
        finally:
            self.idle.clear()
        if message["type"] == "websocket.receive":
            self.held -= _size(message)
        return message

    async def _read_ahead(self) -> None:
        """Read until the caller is gone, or sends more than a caller does: a body, or messages that nobody took yet."""
        while True:
            message = await self._receive()
            gone = message["type"] in ("http.disconnect", "websocket.disconnect")
            self._gone = self._gone or gone
            self.held += _size(message)
            if not gone and (not self._has_room(self) or self._ahead.qsize() >= 32):
                kind = message["type"].partition(".")[0]
                message, gone = {"type": f"{kind}.disconnect", "code": _POLICY_VIOLATION}, True
            self._ahead.put_nowait(message)
            if gone:
                return


def _size(message: Message) -> int:
    return sum(len(message.get(name) or b"") for name in ("body", "bytes", "text"))


def _declared(scope: Message) -> int:
    """Bytes that a request's body will have, as its head says."""
    lengths = [value for name, value in scope.get("headers", ()) if name.lower() == b"content-length"]
    return max((int(value[:20]) for value in lengths if value.isdigit()), default=0)


async def _refuse(scope: Message, receive: Receive, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": why})
        return
    body = json.dumps({"detail": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
