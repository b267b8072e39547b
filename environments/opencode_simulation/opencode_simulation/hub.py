"""The environment's end of the control plane: one Unix socket per process, to which the servers of its worlds connect.

Lines of JSON go both ways: a server's `ServerHello`, then its `WorldReport`s, and `WorldOrder`s to it. A server is
heard only with this process's token, and only about rollouts that it was told to open. What an episode's steps gave
stands in the ledger here before the agent sees it, so nothing is lost when the server dies. No sandbox shows the
socket's directory.

verifiers' state channel does not do this: it sends the whole state with each call, has no way to tell a shared server
that one rollout begins or ends, and does not notice that a server died.
"""

import asyncio
import contextlib
import hmac
import os
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, JsonValue
from rollout_sandbox.at_exit import remove_at_exit

from opencode_simulation.episode import LEDGER_BYTES, EpisodeSpec
from opencode_simulation.errors import BrokenWorldError, WorldError
from opencode_simulation.ledger import Ledger, LedgerEntry

LINE_LIMIT = 2 * LEDGER_BYTES
"""Bytes of the longest line: a step with its observation, which `LEDGER_BYTES` bounds."""
_SERVER_SECONDS = 120.0
"""How long a shared server may take to come up, and any to answer, beyond what the world's own calls may take."""
_RECONNECT_SECONDS = 20.0
"""How long one may take to come up after the last of its group has gone."""

_DIED = ', and the one before has died, perhaps of what an agent asked; server = "rollout" gives each its own'


class ServerHello(BaseModel):
    """A server's first line: who it is, either of a `group` of tasks or of one `rollout`."""

    token: str
    group: str | None = None
    rollout: str | None = None
    port: int | None = None
    """Where the server of one rollout listens."""
    log: str | None = None


class WorldReport(BaseModel):
    """Holds what a server says of one rollout's world."""

    kind: Literal["opened", "stepped", "failed", "closed"]
    rollout: str
    observation: JsonValue = None
    """The first one, which `opened` says."""
    entry: LedgerEntry | None = None
    """The step that `stepped` says."""
    error: str | None = None
    """How the world `failed`."""
    refused: int = 0
    """Calls that changed nothing, which `closed` counts."""


class WorldOrder(BaseModel):
    """Holds what a server is told about one rollout's world; `read` says that the report it waits for has been read."""

    kind: Literal["open", "read", "end"]
    rollout: str
    spec: EpisodeSpec | None = None
    """The episode that `open` begins."""
    finish: bool = False
    """Whether the agent came to its end, so that the world may judge its final state before `end`."""


def line(message: BaseModel) -> bytes:
    return message.model_dump_json().encode() + b"\n"


@dataclass(eq=False)
class WorldServer:
    writer: asyncio.StreamWriter
    hello: ServerHello
    rollouts: set[str] = field(default_factory=set)

    def send(self, order: WorldOrder) -> None:
        """Tell the server something; what it no longer hears is lost."""
        if not self.writer.is_closing():
            self.writer.write(line(order))


@dataclass
class SharedServers:
    """The shared servers of the tasks of one configuration."""

    servers: list[WorldServer] = field(default_factory=list)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False
    """Whether the last one has gone."""


@dataclass(eq=False)
class OpenRollout:
    """One rollout whose world is played, and what is known of it."""

    spec: EpisodeSpec
    ledger: Ledger
    changed: Callable[[Ledger], None]
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether it was reset, or failed."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    unopened: set[WorldServer] = field(default_factory=set)
    """Servers that shall give a world. More than one only where several environments of one process share the tasks,
    of which the agent knows one."""
    playing: set[WorldServer] = field(default_factory=set)
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
        self._groups: defaultdict[str, SharedServers] = defaultdict(SharedServers)
        self._servers: set[WorldServer] = set()
        self._listener: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()

    async def open(self, rollout: str, spec: EpisodeSpec, ledger: Ledger, changed: Callable[[Ledger], None]) -> None:
        """Expect a world for a rollout; `changed` is called with its ledger whenever that has changed."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # another evaluation of this process, whose loop is gone with all it had
            self._loop, self._listener, self._starting = loop, None, asyncio.Lock()
            self._rollouts, self._groups, self._servers = {}, defaultdict(SharedServers), set()
        async with self._starting:
            if self._listener is None:
                Path(self.path).unlink(missing_ok=True)
                self._listener = await asyncio.start_unix_server(self._serve, self.path, limit=LINE_LIMIT)
        self._rollouts[rollout] = OpenRollout(spec, ledger, changed)
        changed(ledger)

    async def open_shared(self, rollout: str, group: str) -> None:
        """Have the shared servers of `group` reset a world for an open rollout; a `WorldError` where none came up in
        time, or it could not be reset."""
        played, shared = self._rollouts[rollout], self._groups[group]
        coming = _RECONNECT_SECONDS if shared.lost else _SERVER_SECONDS
        answering = _SERVER_SECONDS + played.spec.step_timeout
        slow = f"no shared server came up within {coming:g} s{_DIED if shared.lost else ''}"
        try:
            async with asyncio.timeout(coming):
                await shared.up.wait()
            slow = f"the shared server gave no world within {answering:g} s"
            async with asyncio.timeout(answering):
                for server in shared.servers:
                    self._send_open(server, rollout, played)
                await played.opened.wait()
        except TimeoutError:
            played.fail(slow)
        played.raise_failure()

    def over(self, rollout: str) -> bool:
        """Whether a rollout's world has ended or failed."""
        played = self._rollouts.get(rollout)
        return played is not None and played.over

    async def finish(self, rollout: str) -> Ledger:
        """Close a rollout's world and return its whole ledger; a `WorldError` where the world failed at any time, or
        its server died."""
        played = self._rollouts[rollout]
        seconds = _SERVER_SECONDS + 3 * played.spec.step_timeout  # the step that is being taken, `finish` and `close`
        for server in played.playing:
            server.send(WorldOrder(kind="end", rollout=rollout, finish=True))
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
            for server in played.playing:
                server.send(WorldOrder(kind="end", rollout=rollout))
        self._rest()

    def _rest(self) -> None:
        """Stop listening while nobody plays."""
        if self._listener is not None and not self._rollouts and not self._servers:
            self._listener.close()
            self._listener = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, ValueError):  # it is not a server of ours
                hello = ServerHello.model_validate_json(await reader.readline())
                if hmac.compare_digest(hello.token, self.token):
                    await self._hear(WorldServer(writer, hello), reader)
        finally:
            writer.close()
            self._rest()

    async def _hear(self, server: WorldServer, reader: asyncio.StreamReader) -> None:
        self._servers.add(server)
        group, rollout = server.hello.group, server.hello.rollout
        if group is not None:
            shared = self._groups[group]
            shared.servers.append(server)
            shared.lost = False
            shared.up.set()
        elif rollout is not None and (played := self._rollouts.get(rollout)) is not None:
            self._send_open(server, rollout, played)
        try:
            while text := await reader.readline():
                self._take(server, WorldReport.model_validate_json(text))
        except ValueError as error:  # no message, or one that is longer than LINE_LIMIT
            for played in self._played_on(server):
                played.fail(f"the world's server said what cannot be read: {str(error)[:300]}")
        finally:
            await self._leave(server)

    def _played_on(self, server: WorldServer) -> list[OpenRollout]:
        return [self._rollouts[rollout] for rollout in server.rollouts & self._rollouts.keys()]

    async def _leave(self, server: WorldServer) -> None:
        self._servers.discard(server)
        hello = server.hello
        if hello.group is not None:
            shared = self._groups[hello.group]
            shared.servers = [other for other in shared.servers if other is not server]
            if not shared.servers:
                shared.up.clear()
                shared.lost = True
        for played in self._played_on(server):
            if not played.closed.is_set():
                played.fail(f"the world's server died{last_words(hello.log)}")
                played.changed(played.ledger)
                if hello.port is not None:
                    with contextlib.suppress(OSError):  # another program was faster
                        played.refusing = await asyncio.start_server(_refuse, "127.0.0.1", hello.port)

    def _take(self, server: WorldServer, report: WorldReport) -> None:
        played = self._rollouts.get(report.rollout)
        if played is None or server not in played.playing:
            return
        ledger = played.ledger
        match report.kind:
            case "opened":
                ledger.summary.first_observation = report.observation
                played.played = True
                played.unopened.discard(server)
                if not played.unopened:
                    played.opened.set()
            case "stepped":
                assert report.entry is not None
                ledger.add(report.entry)
            case "failed":
                ledger.summary.error = ledger.summary.error or report.error
                played.opened.set()
            case "closed":
                ledger.summary.refused += report.refused
                played.playing.discard(server)
                if not played.playing:
                    played.closed.set()
        played.changed(ledger)
        if played.over or report.kind == "opened":
            server.send(WorldOrder(kind="read", rollout=report.rollout))

    @staticmethod
    def _send_open(server: WorldServer, rollout: str, played: OpenRollout) -> None:
        played.unopened.add(server)
        played.playing.add(server)
        server.rollouts.add(rollout)
        server.send(WorldOrder(kind="open", rollout=rollout, spec=played.spec))


@cache
def hub() -> Hub:
    return Hub()


def last_words(log: str | None) -> str:
    """The end of what a server printed, behind a colon; nothing where that cannot be read any more."""
    if log is None:
        return ""
    with contextlib.suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, os.stat(log).st_size - 1000))
        return f": {said}" if (said := file.read().decode(errors="replace").strip()) else ""
    return ""


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(5.0):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
    finally:
        writer.close()
