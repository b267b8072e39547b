"""The tool servers of worlds, on verifiers' own `Toolset`: of one rollout's world, or of those that rollouts share.

A server runs on the host and never in the agent's sandbox. A request reaches the one world whose rollout's URL it came
by: a shared server knows a rollout by the coordinates that verifiers signs with a secret that no sandbox sees. It plays
only the episodes that the environment orders over its line (`hub`), and closes every world before it ends itself.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import uvloop
import verifiers.v1 as vf
from mcp.server.mcpserver import MCPServer
from pydantic import model_validator
from verifiers.v1.runtimes import SubprocessConfig

from opencode_simulation.episode import Episode, Event
from opencode_simulation.errors import CallRefused, WorldError
from opencode_simulation.hub import LINE_LIMIT, ServerHello, WorldOrder, WorldReport, line
from opencode_simulation.mcp_tools import Request, offer_world
from opencode_simulation.reference import find_world, world_name
from opencode_simulation.world import World

logger = logging.getLogger(__name__)
_LAST_CALL_SECONDS = 2.0
"""How long a call may go on when the server is told to end: its sender is gone, and verifiers kills the server soon."""


class HubConnection:
    """The line of one server process: it connects now, or, while the environment does not listen yet, once it does."""

    def __init__(self, world: type[World], path: str, hello: ServerHello) -> None:
        self._world = world
        self._path = path
        self._hello = hello
        self._writer: asyncio.StreamWriter | None = None
        self._read: dict[str, asyncio.Event] = {}
        self._orders: set[asyncio.Task[None]] = set()
        self._serving = asyncio.create_task(self._serve())
        self._stopping: asyncio.Task[None] | None = None
        self.episodes: dict[str, Episode] = {}
        self.opened = asyncio.Event()
        """Whether any world was opened, or failed to be."""

    async def _say(self, report: WorldReport, *, until_read: bool = False) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ConnectionError("the environment of this world is gone")
        read = self._read.setdefault(report.rollout, asyncio.Event()) if until_read else None
        if read is not None:
            read.clear()
        self._writer.write(line(report))
        await self._writer.drain()
        if read is not None:
            await read.wait()

    async def stop(self) -> None:
        """Close every world and the line; whoever asks again waits for the same end."""
        self._stopping = self._stopping or asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        # A server of a rollout's own is told to end when the agent has stopped, before the environment asks for more.
        own = self._hello.rollout is not None
        await asyncio.gather(*(self._close(rollout, _LAST_CALL_SECONDS, finish=own) for rollout in list(self.episodes)))
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()

    async def _serve(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path, limit=LINE_LIMIT)
            except OSError:
                await asyncio.sleep(0.2)
                continue
            self._writer = writer
            writer.write(line(self._hello))
            with contextlib.suppress(ConnectionError):
                while text := await reader.readline():
                    self._obey(WorldOrder.model_validate_json(text))
            writer.close()
            await asyncio.gather(*(self._close(rollout) for rollout in list(self.episodes)))

    def _obey(self, order: WorldOrder) -> None:
        if order.kind == "read":
            if (read := self._read.get(order.rollout)) is not None:
                read.set()
            return
        work = self._open(order) if order.kind == "open" else self._close(order.rollout, finish=order.finish)
        task = asyncio.create_task(work)
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _open(self, order: WorldOrder) -> None:
        rollout, spec = order.rollout, order.spec
        assert spec is not None

        async def record(event: Event) -> None:
            # What ends an episode is waited for: the environment knows it before the agent does.
            if isinstance(event, str):
                await self._say(WorldReport(kind="failed", rollout=rollout, error=event), until_read=True)
            else:
                report = WorldReport(kind="stepped", rollout=rollout, entry=event)
                await self._say(report, until_read=event.terminated or event.truncated)

        episode = self.episodes[rollout] = Episode(self._world, spec, record)
        with contextlib.suppress(ConnectionError):
            try:
                opened = WorldReport(kind="opened", rollout=rollout, observation=await episode.start())
                await self._say(opened, until_read=True)
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
                await self._say(WorldReport(kind="failed", rollout=rollout, error=str(error)))
            await self._say(WorldReport(kind="closed", rollout=rollout, refused=episode.refused))
        self._read.pop(rollout, None)


AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
_AT_ONCE = 8


class RequestSlots:
    """Lets a few requests of each rollout through; the others wait unread. Those that name none are together.

    A request may have 4 MiB and costs several times that while it is read, and an agent's programs have 128
    connections: unbounded, one rollout takes gigabytes of a server that it shares, and its neighbours wait.
    """

    def __init__(self, app: AsgiApp, asked_for: Callable[[], str | None]) -> None:
        self._app = app
        self._asked_for = asked_for
        self._slots: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rollout = scope["rollout"] = self._asked_for()
        slots = self._slots.setdefault(rollout, asyncio.Semaphore(_AT_ONCE))
        async with slots:
            await self._app(scope, receive, send)


class SimulationState(vf.State):
    """Nothing: that a server has a state of its own makes verifiers sign the URLs of those that share it."""


class SimulationToolsetConfig(vf.ToolsetConfig):
    """Sets what the server's process is told; only processes of the host can read it."""

    world: str
    socket: str
    token: str
    group: str | None = None
    """Whose worlds a shared server serves. None: it serves one rollout."""
    import_path: list[str] = []
    """Where the environment finds modules, the world's among them."""

    @model_validator(mode="after")
    def _on_the_host(self) -> "SimulationToolsetConfig":
        if self.colocated or self.url or not isinstance(self.runtime, SubprocessConfig):
            raise ValueError(
                "a world's server runs on the host, as a process of its own: its rewards must be out of the agent's "
                'reach; leave out colocated, url and any runtime but "subprocess"'
            )
        return self


class SimulationToolset(vf.Toolset[SimulationToolsetConfig, SimulationState]):
    """Serves a world's tools and resources to the rollouts that share it."""

    _link: HubConnection

    @classmethod
    def run(cls) -> None:
        """Serve until told to end, on uvloop, whose connections have TCP_NODELAY: without it a call right after another
        waits 40 ms for an acknowledgement."""
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        super().run()

    @property
    def server_name(self) -> str:
        return world_name(find_world(self.config.world))

    async def setup(self) -> None:
        """Find the world; a shared server is then ready, and waits for orders."""
        faulthandler.enable()  # the log then says where a world brought Python down
        logging.getLogger("mcp").setLevel(logging.WARNING)  # below it says something of every call
        sys.path.extend(path for path in self.config.import_path if path not in sys.path)
        self._world = find_world(self.config.world)
        if self.config.group is not None:
            self.connect(ServerHello(token=self.config.token, group=self.config.group, log=own_log()))

    def connect(self, hello: ServerHello) -> None:
        self._link = HubConnection(self._world, self.config.socket, hello)
        # verifiers ends the server with SIGTERM, and kills it five seconds later. uvicorn would spend them on calls
        # that nobody waits for any more; the environment is to hear of the end whatever uvicorn does.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._told_to_end)
        self._exit_stack.push_async_callback(self._end)

    def _told_to_end(self) -> None:
        self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        await self._link.stop()
        os._exit(0)  # Python takes seconds to take its modules apart

    def rollout_asked_for(self) -> str | None:
        """The rollout whose world the request that is being served is for, as verifiers signed it into its URL."""
        try:
            _, _, route = self._state_channel()
        except (TypeError, ValueError):  # the signature is not ASCII, or not the right one
            return None
        return route

    def register(self, mcp: MCPServer[Any]) -> None:
        async def find(request: Request) -> Episode:
            rollout = None if request.request is None else request.request.scope["rollout"]
            episode = self._link.episodes.get(rollout) if rollout else None
            if episode is None:
                raise CallRefused("there is no world at this address")
            return episode

        offer_world(mcp, self._world, find)
        served = mcp.streamable_http_app

        def with_request_slots(**options: Any) -> AsgiApp:
            return RequestSlots(served(**options), self.rollout_asked_for)

        mcp.streamable_http_app = with_request_slots  # type: ignore[method-assign,assignment]  # what verifiers serves


def own_log() -> str | None:
    """The file to which this process prints, if it is one."""
    with contextlib.suppress(OSError):
        path = Path(os.readlink("/proc/self/fd/2"))
        return str(path) if path.is_file() else None
    return None


class RolloutToolset(SimulationToolset):
    """Serves the tools and resources of one world, to whoever reaches its port: the one rollout's sandbox."""

    _rollout: str | None = None

    async def setup_task(self, task: Any) -> None:
        """Play the rollout's world: it is reset before the agent starts."""
        self._rollout = task.rollout
        port = int(Path(os.environ["MCP_PORT_FILE"]).read_text())
        self.connect(ServerHello(token=self.config.token, rollout=task.rollout, port=port, log=own_log()))
        await self._link.opened.wait()

    def rollout_asked_for(self) -> str | None:
        return self._rollout


if __name__ == "__main__":  # verifiers starts the module of a server, which is not told of which class
    shared = SimulationToolsetConfig.model_validate_json(os.environ["VF_CONFIG"]).group is not None
    (SimulationToolset if shared else RolloutToolset).run()
