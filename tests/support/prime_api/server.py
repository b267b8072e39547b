"""The server that tests start, and what they ask of it."""

import asyncio
import contextlib
import secrets
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import uvicorn
from rollout_sandbox.confined import Bind

from tests.support.prime_api import control, gateway
from tests.support.prime_api.faults import Fault, Traffic
from tests.support.prime_api.sandboxes import BoxOf, Plan, Sandbox, Sandboxes, confined

_API = "/api/"
Images = Mapping[str, Sequence[Bind]]


class _Server(uvicorn.Server):
    """A server inside of somebody else's program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PrimeApi:
    """The platform and its gateway on one port of the loopback, for as long as the context is open.

    Args:
        images: host directories that a sandbox of an image shows read-only; any other image is a bare one.
        minute_s: seconds that a minute of a sandbox's lifetime has.
        seed: of the chance with which faults with a `share` happen.
        box_of: makes what stands behind a sandbox.
    """

    def __init__(
        self, images: Images | None = None, *, minute_s: float = 60.0, seed: int = 0, box_of: BoxOf = confined
    ) -> None:
        self.key = f"test-{secrets.token_hex(8)}"
        self.team = f"team-{secrets.token_hex(4)}"
        """The one team that the key's owner is a member of."""
        self._traffic = Traffic(seed)
        self._sandboxes = Sandboxes(images or {}, minute_s, box_of)
        self._control = control.Control(self._sandboxes, self.key, lambda: self.url, (self.team,)).application
        self._gateway = gateway.Gateway(self._sandboxes)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        plain: Any = {"interface": "asgi3", "log_config": None, "lifespan": "off", "ws": "none"}
        self._server = _Server(uvicorn.Config(self._serve, timeout_graceful_shutdown=1, **plain))
        self._serving: asyncio.Task[None] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What leads the SDK here."""
        return {"PRIME_API_KEY": self.key, "PRIME_API_BASE_URL": self.url}

    @property
    def requests(self) -> Counter[str]:
        """How many requests of each name came."""
        return self._traffic.requests

    @property
    def received_bytes(self) -> int:
        """Bytes of all requests' bodies."""
        return self._traffic.received_bytes

    @property
    def sent_bytes(self) -> int:
        """Bytes of all answers' bodies."""
        return self._traffic.sent_bytes

    @property
    def faults_happened(self) -> int:
        """How many requests met a fault."""
        return self._traffic.happened

    @property
    def sandboxes(self) -> list[Sandbox]:
        """All that were ever asked for, in that order."""
        return list(self._sandboxes.all.values())

    @property
    def living(self) -> list[Sandbox]:
        """Those that cost something."""
        return [sandbox for sandbox in self.sandboxes if not sandbox.over]

    def plan(self, plan: Plan) -> None:
        """Have the sandboxes that are asked for from now on live like this."""
        self._sandboxes.plan = plan

    def add(self, *faults: Fault) -> None:
        """Have requests go wrong."""
        self._traffic.faults += faults

    async def end(self, sandbox: Sandbox, error_type: str) -> None:
        """End a sandbox as its machine does (`OOM_KILLED`, …)."""
        await self._sandboxes.end(sandbox, "ERROR", error_type)

    def drop_streams(self) -> None:
        """Break the stream of every command, as a network does."""
        for sandbox in self.living:
            if sandbox.sessions is not None:
                sandbox.sessions.drop_streams()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path.startswith(_API):
            name = control.route_name(scope["method"], path)
            await self._traffic.pass_on(name, self._control, scope, receive, send)
        else:
            await self._traffic.pass_on(gateway.route_name(path), self._gateway, scope, receive, send)

    async def __aenter__(self) -> "PrimeApi":
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sandboxes.close()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._socket.close()
