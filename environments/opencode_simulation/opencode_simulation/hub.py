"""The environment's end of the control plane: one socket per process, to which the servers of its worlds connect.

Invariant: a server is heard only with this process's token, and only about rollouts that are open; what was read of a
rollout stands in its ledger at once, so nothing is lost when the server dies.
"""

import asyncio
import contextlib
import hmac
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import BaseModel
from rollout_sandbox.at_exit import remove_at_exit

from opencode_simulation import wire
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import BrokenWorldError, WorldError
from opencode_simulation.ledger import Ledger
from opencode_simulation.wire import LINE_LIMIT

_SERVER_SECONDS = 120.0
"""How long a shared server may take to come up, and any to answer, beyond what the world's own calls may take."""
_RECONNECT_SECONDS = 20.0
"""How long one may take to come up after the last of its group has gone."""


@dataclass(eq=False)
class Connection:
    writer: asyncio.StreamWriter
    rollouts: set[str] = field(default_factory=set)
    port: int | None = None
    """Of a server of a rollout's own: where its agent finds it."""
    log: Path | None = None

    def send(self, message: BaseModel) -> None:
        """Say something to the server; what it no longer hears is lost."""
        if not self.writer.is_closing():
            self.writer.write(wire.line(message))


@dataclass(eq=False)
class OpenRollout:
    """One rollout whose world is played, and what is known of it."""

    spec: EpisodeSpec
    ledger: Ledger
    changed: Callable[[Ledger], None]
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether it was reset, or failed."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    unopened: set[Connection] = field(default_factory=set)
    """Servers that shall give a world. More than one only where several environments of one process share the tasks,
    of which the agent knows one."""
    playing: set[Connection] = field(default_factory=set)
    """Servers that have not closed their world yet."""

    played: bool = False
    """Whether it was reset: from then on the agent can act."""
    refusing: asyncio.Server | None = None
    """Answers at the port of its server that died. Otherwise verifiers asks for three minutes whether a server of a
    rollout's own is up, and the system may give the port to another rollout's world while this one's programs still
    call."""

    @property
    def over(self) -> bool:
        """Whether nothing that the agent does counts any more."""
        whole = self.ledger.summary
        return whole.terminated or whole.truncated or whole.error is not None

    def fail(self, error: str) -> None:
        """Note the first failure, and let nobody wait any longer."""
        self.ledger.summary.error = self.ledger.summary.error or error
        self.opened.set()
        self.closed.set()

    def raise_failure(self) -> None:
        if self.ledger.summary.error is not None:
            raise (BrokenWorldError if self.played else WorldError)(self.ledger.summary.error)


class Hub:
    """All worlds of this process's rollouts, by the rollouts' ids."""

    def __init__(self) -> None:
        short = len(tempfile.gettempdir()) < 80  # the path of a Unix socket has 107 characters at most
        directory = tempfile.mkdtemp(prefix="worlds-", dir=None if short else "/tmp")  # mode 0700
        remove_at_exit(directory)
        self.path = f"{directory}/socket"
        self.token = secrets.token_urlsafe(32)
        self._rollouts: dict[str, OpenRollout] = {}
        self._shared: dict[str, list[Connection]] = {}
        self._there: dict[str, asyncio.Event] = {}
        self._lost: set[str] = set()
        """Groups whose last shared server has gone."""
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()

    async def open(self, rollout: str, spec: EpisodeSpec, ledger: Ledger, changed: Callable[[Ledger], None]) -> None:
        """Expect a world for a rollout; `changed` is called with its ledger whenever that has changed."""
        await self._listen()
        self._rollouts[rollout] = OpenRollout(spec, ledger, changed)
        changed(ledger)

    async def open_shared(self, rollout: str, group: str) -> None:
        """Have the shared servers of `group` reset a world for an open rollout.

        Raises:
            WorldError: it could not be reset, or no server came up in time.
        """
        played = self._rollouts[rollout]
        coming = _RECONNECT_SECONDS if group in self._lost else _SERVER_SECONDS
        answering = _SERVER_SECONDS + played.spec.step_timeout
        slow = f"no shared server came up within {coming:g} s"
        if group in self._lost:
            slow += (
                ', and the one before has died, perhaps of what an agent asked; server = "rollout" gives each its own'
            )
        try:
            async with asyncio.timeout(coming):
                await self._there.setdefault(group, asyncio.Event()).wait()
            slow = f"the shared server gave no world within {answering:g} s"
            async with asyncio.timeout(answering):
                for connection in self._shared[group]:
                    self._send_open(connection, rollout, played)
                await played.opened.wait()
        except TimeoutError:
            played.fail(slow)
        played.raise_failure()

    def over(self, rollout: str) -> bool:
        """Whether a rollout's world has ended or failed."""
        played = self._rollouts.get(rollout)
        return played is not None and played.over

    async def finish(self, rollout: str) -> Ledger:
        """Close a rollout's world and return its whole ledger.

        Raises:
            WorldError: the world failed at any time, or its server died.
        """
        played = self._rollouts[rollout]
        seconds = _SERVER_SECONDS + 3 * played.spec.step_timeout  # the step that is being taken, `finish` and `close`
        for connection in played.playing:
            connection.send(wire.End(rollout=rollout, finish=True))
        try:
            async with asyncio.timeout(seconds):
                await played.closed.wait()
        except TimeoutError:
            played.fail(f"the world was not closed within {seconds:g} s")
        played.changed(played.ledger)
        played.raise_failure()
        return played.ledger

    async def forget(self, rollout: str) -> None:
        """Let a rollout go, whatever became of it; idempotent."""
        played = self._rollouts.pop(rollout, None)
        if played is not None:
            if played.refusing is not None:
                played.refusing.close()
            for connection in played.playing:
                connection.send(wire.End(rollout=rollout, finish=False))
        self._rest()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # another evaluation of this process, whose loop is gone with all it had
            self._loop, self._server, self._starting = loop, None, asyncio.Lock()
            self._rollouts, self._shared, self._there, self._connections, self._lost = {}, {}, {}, set(), set()
        async with self._starting:
            if self._server is None:
                Path(self.path).unlink(missing_ok=True)
                self._server = await asyncio.start_unix_server(self._serve, self.path, limit=LINE_LIMIT)

    def _rest(self) -> None:
        """Stop listening while nobody plays."""
        if self._server is not None and not self._rollouts and not self._connections:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer)
        self._connections.add(connection)
        try:
            with contextlib.suppress(ConnectionError):
                while text := await reader.readline():
                    self._take(connection, wire.FROM_SERVER.validate_json(text))
        except ValueError as error:  # no message, or one that is longer than LINE_LIMIT
            for rollout in connection.rollouts & self._rollouts.keys():
                self._rollouts[rollout].fail(f"the world's server said what cannot be read: {str(error)[:300]}")
        finally:
            self._connections.discard(connection)
            self._leave(connection)
            for played in [self._rollouts[rollout] for rollout in connection.rollouts & self._rollouts.keys()]:
                if not played.closed.is_set():
                    played.fail(f"the world's server died{last_words(connection.log)}")
                    played.changed(played.ledger)
                    if connection.port is not None:
                        with contextlib.suppress(OSError):  # another program was faster
                            played.refusing = await asyncio.start_server(_refuse, "127.0.0.1", connection.port)
            writer.close()
            self._rest()

    def _leave(self, connection: Connection) -> None:
        for group, members in self._shared.items():
            if connection in members:
                members.remove(connection)
            if not members:
                self._there[group].clear()
                self._lost.add(group)

    def _take(self, connection: Connection, message: wire.FromServer) -> None:
        if isinstance(message, wire.Hello):
            self._greet(connection, message)
            return
        played = self._rollouts.get(message.rollout)
        if played is None or connection not in played.playing:
            return
        ledger = played.ledger
        match message:
            case wire.Opened(observation=observation):
                ledger.summary.first_observation = observation
                played.played = True
                played.unopened.discard(connection)
                if not played.unopened:
                    played.opened.set()
            case wire.Stepped(entry=entry):
                ledger.add(entry)
            case wire.Failed(error=error):
                ledger.summary.error = ledger.summary.error or error
                played.opened.set()
            case wire.Closed(refused=refused):
                ledger.summary.refused += refused
                played.playing.discard(connection)
                if not played.playing:
                    played.closed.set()
        played.changed(ledger)
        if played.over or isinstance(message, wire.Opened):
            connection.send(wire.Acknowledged(rollout=message.rollout))

    def _greet(self, connection: Connection, hello: wire.Hello) -> None:
        if not hmac.compare_digest(hello.token, self.token):
            connection.writer.close()
            return
        connection.port, connection.log = hello.port, Path(hello.log) if hello.log is not None else None
        if hello.group is not None:
            self._shared.setdefault(hello.group, []).append(connection)
            self._lost.discard(hello.group)
            self._there.setdefault(hello.group, asyncio.Event()).set()
        elif hello.rollout is not None and (played := self._rollouts.get(hello.rollout)) is not None:
            self._send_open(connection, hello.rollout, played)

    @staticmethod
    def _send_open(connection: Connection, rollout: str, played: OpenRollout) -> None:
        played.unopened.add(connection)
        played.playing.add(connection)
        connection.rollouts.add(rollout)
        connection.send(wire.Open(rollout=rollout, spec=played.spec))


@cache
def hub() -> Hub:
    return Hub()


def last_words(log: Path | None) -> str:
    """The end of what a server printed, behind a colon; nothing where that cannot be read any more."""
    if log is None:
        return ""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 1000))
        return f": {said}" if (said := file.read().decode(errors="replace").strip()) else ""
    return ""


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer whoever comes that nobody is there."""
    try:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(5.0):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
    finally:
        writer.close()
