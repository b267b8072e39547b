"""A world alone, without an agent or a sandbox: served under /mcp, played by its author, or checked with its solution.

The right solution of a row is a list of tool calls, `[{"tool": "move", "arguments": {"direction": "right"}}, …]`, in
the row's `info`; an empty list says that nothing must be done.
"""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
import verifiers.v1 as vf
from mcp.client.client import Client
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from opencode_env.check_tasks.check import Check
from opencode_env.taskset.gold import GOLD_COLUMNS, trace_for
from pydantic import JsonValue

from opencode_simulation.episode import Episode, EpisodeSpec, Event
from opencode_simulation.ledger import LEDGER_KEY, Ledger, LedgerSummary
from opencode_simulation.mcp_tools import Request, offer_world
from opencode_simulation.reference import find_world, world_name
from opencode_simulation.world import World


class WorldAlone:
    """One episode of a world, with its ledger; `async with` resets it (or raises a `WorldError`) and closes it."""

    def __init__(self, world: type[World], spec: EpisodeSpec, ledger_path: Path | None = None) -> None:
        self.ledger = Ledger(summary=LedgerSummary(world=world.__name__, seed=spec.seed, config=dict(spec.config)))
        self.kind = world
        self.episode = Episode(world, spec, self._record)
        self.first_observation: JsonValue = None
        self.on_failure: Callable[[str], object] = lambda _: None
        """Called when the world fails, with how."""
        self._ledger_path = ledger_path

    async def _record(self, event: Event) -> None:
        if isinstance(event, str):
            self.ledger.summary.error = event
            self.on_failure(event)
            return
        self.ledger.add(event)
        if self._ledger_path is not None:
            with self._ledger_path.open("a", encoding="utf-8") as file:
                file.write(event.model_dump_json() + "\n")

    async def __aenter__(self) -> "WorldAlone":
        self.first_observation = self.ledger.summary.first_observation = await self.episode.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.episode.close()

    def server(self) -> MCPServer[Any]:

        async def find(request: Request) -> Episode:
            return self.episode

        mcp: MCPServer[Any] = MCPServer(world_name(self.kind))
        offer_world(mcp, self.kind, find)
        return mcp


async def serve_alone(world: WorldAlone, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve a world under `/mcp` until SIGTERM or SIGINT; `ready` is called with the port when it can be reached."""
    app = world.server().streamable_http_app(
        json_response=True,
        stateless_http=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))

    def end(*_: object) -> None:
        server.should_exit = True

    # One that comes before uvicorn listens to it counts, too; and after it the world is still to be closed.
    signal.signal(signal.SIGTERM, end)
    with socket.create_server((host, port)) as listener:
        # Its connections take it over; else the body of an answer waits 40 ms for the headers' acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ready(listener.getsockname()[1])
        await server.serve(sockets=[listener])


_CLOSE = 1e-6


def gold_calls(data: Any, column: str | None = None) -> Any:
    columns = (column,) if column else GOLD_COLUMNS
    return next((data.info[name] for name in columns if name in data.info), None)


def are_calls(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(call, dict) and "tool" in call for call in value)


async def gold_is_right(task: Any) -> bool | None:
    """Whether a row's solution alone gives 1; None where there is none, a `TaskError` where it cannot be played."""
    calls = gold_calls(task.data)
    if calls is None:
        return None
    if not are_calls(calls):
        raise vf.TaskError("the gold solution of a world is a list of {tool, arguments}")
    return await played(task, calls) > 1 - _CLOSE


async def played(task: Any, calls: Any) -> float:
    """The reward after these calls; a `TaskError` where the world refused one or failed."""
    refused = ""
    async with WorldAlone(find_world(task.config.world), task.episode_spec()) as alone:
        async with Client(alone.server()) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            for call in calls:
                name = call["tool"]
                if name not in tools or (await client.call_tool(name, call.get("arguments", {}))).is_error:
                    refused = f"the world refused the gold solution's call of {name!r}"
                    break
        await alone.episode.finish()
        ledger = alone.ledger
    if refused:
        raise vf.TaskError(refused)
    if ledger.summary.error is not None:
        raise vf.TaskError(f"the world failed: {ledger.summary.error}")
    trace = trace_for(task, vf.AgentConfig())
    trace.info[LEDGER_KEY] = ledger.model_dump(mode="json")
    await task.rubric.score(task.data, trace, None)
    return float(trace.reward)


class WorldCheck(Check):
    def __init__(self, task: vf.Task[Any, Any, Any], repeats: int, column: str | None) -> None:
        super().__init__()
        self._task, self._repeats = task, repeats
        self._calls = gold_calls(task.data, column)

    async def run(self) -> None:
        try:
            self.untouched = [await played(self._task, []) for _ in range(self._repeats)]
            if self._calls is None:
                self.note("no-gold", "there is no gold solution to try: a list of tool calls in the row's info")
            elif not are_calls(self._calls):
                self.note("no-gold", "the gold solution of a world is a list of {tool, arguments}")
            else:
                self.gold = [await played(self._task, self._calls) for _ in range(self._repeats)]
        except (vf.RolloutError, ValueError) as error:
            self.note("broken", f"{type(error).__name__}: {str(error)[-600:]}")
            return
        if self._calls != [] and max(self.untouched) > _CLOSE:
            self.note("untouched-passes", f"an untouched world scores {max(self.untouched):g}, and not 0")
        if self.gold and max(self.gold) < 1 - _CLOSE:
            self.note("gold-fails", f"the gold solution scores {max(self.gold):g}, and not 1")
        if len(set(self.untouched)) > 1 or len(set(self.gold)) > 1:
            self.note("flaky", f"equal worlds score {self.untouched} untouched and {self.gold} with the gold solution")
