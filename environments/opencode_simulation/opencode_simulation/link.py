"""A world server's end of the control plane: its line to the environment, and the episodes that it plays for it.

Invariant: the server plays only what the environment orders; it ends every world before it ends itself.
"""

import asyncio
import contextlib
import logging

from opencode_simulation import wire
from opencode_simulation.episode import Episode
from opencode_simulation.errors import WorldError
from opencode_simulation.ledger import LedgerEntry
from opencode_simulation.world import World

logger = logging.getLogger(__name__)
_LAST_CALL_SECONDS = 2.0
"""How long a call may go on when the server is told to end: its sender is gone, and verifiers kills the server soon."""


class _Reports:
    """What happens in one episode, to the environment. What ends it is waited for until the environment has read it,
    so that it knows before the agent does."""

    def __init__(self, link: "Link", rollout: str) -> None:
        self._link = link
        self._rollout = rollout

    async def step(self, entry: LedgerEntry) -> None:
        stepped = wire.Stepped(rollout=self._rollout, entry=entry)
        await self._link.say(stepped, until_heard=entry.terminated or entry.truncated)

    async def failed(self, error: str) -> None:
        await self._link.say(wire.Failed(rollout=self._rollout, error=error), until_heard=True)


class Link:
    """The line of one server process: it connects now, or, while the environment does not listen yet, once it does.

    Args:
        path: the environment's socket.
        hello: who this server is.
    """

    def __init__(self, world: type[World], path: str, hello: wire.Hello) -> None:
        self._world = world
        self._path = path
        self._hello = hello
        self._writer: asyncio.StreamWriter | None = None
        self._heard: dict[str, asyncio.Event] = {}
        self._orders: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._serve())
        self._stopping: asyncio.Task[None] | None = None
        self.episodes: dict[str, Episode] = {}
        self.opened = asyncio.Event()
        """Whether any world was opened, or failed to be."""

    async def say(self, message: wire.OfRollout, *, until_heard: bool = False) -> None:
        """Tell the environment something, and return when it has read it, if that is to be waited for.

        Raises:
            ConnectionError: the environment is gone.
        """
        if self._writer is None or self._writer.is_closing():
            raise ConnectionError("the environment of this world is gone")
        heard = self._heard.setdefault(message.rollout, asyncio.Event()) if until_heard else None
        if heard is not None:
            heard.clear()
        self._writer.write(wire.line(message))
        await self._writer.drain()
        if heard is not None:
            await heard.wait()

    async def stop(self) -> None:
        """Close every world and the line; whoever asks again waits for the same end."""
        self._stopping = self._stopping or asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        # A server of a rollout's own is told to end when the agent has stopped, before the environment asks for more.
        own = self._hello.rollout is not None
        await asyncio.gather(*(self._close(rollout, _LAST_CALL_SECONDS, finish=own) for rollout in list(self.episodes)))
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()

    async def _serve(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path, limit=wire.LINE_LIMIT)
            except OSError:
                await asyncio.sleep(0.2)
                continue
            self._writer = writer
            writer.write(wire.line(self._hello))
            with contextlib.suppress(ConnectionError):
                while text := await reader.readline():
                    self._obey(text)
            writer.close()
            await asyncio.gather(*(self._close(rollout) for rollout in list(self.episodes)))

    def _obey(self, text: bytes) -> None:
        order = wire.TO_SERVER.validate_json(text)
        if isinstance(order, wire.Acknowledged):
            if (heard := self._heard.get(order.rollout)) is not None:
                heard.set()
            return
        work = self._open(order) if isinstance(order, wire.Open) else self._close(order.rollout, finish=order.finish)
        task = asyncio.create_task(work)
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _open(self, order: wire.Open) -> None:
        episode = Episode(self._world, order.spec, _Reports(self, order.rollout))
        self.episodes[order.rollout] = episode
        with contextlib.suppress(ConnectionError):
            try:
                opened = wire.Opened(rollout=order.rollout, observation=await episode.start())
                await self.say(opened, until_heard=True)
            except WorldError as error:
                logger.warning("%s", error)
        self.opened.set()

    async def _close(self, rollout: str, patience: float | None = None, *, finish: bool = False) -> None:
        episode = self.episodes.pop(rollout, None)
        if episode is None:
            return
        with contextlib.suppress(ConnectionError):
            try:
                if finish:
                    await episode.finish(patience)
                await episode.close(patience)
            except WorldError as error:
                await self.say(wire.Failed(rollout=rollout, error=str(error)))
            await self.say(wire.Closed(rollout=rollout, refused=episode.refused))
        self._heard.pop(rollout, None)
