"""What a simulated world costs: its server ÷ a bare `mcp` server with the same tool, in one run.

Latency: one MCP client each calls, alternately, the tool of a bare server (the SDK's `MCPServer`, sessionless HTTP with
JSON answers as verifiers serves it, the same lake behind the same signature) and one of 64 worlds of one world server,
whose ledger goes to this process; servers and clients are processes of their own, as an agent is. The bare server is as
the SDK makes it, on asyncio's own loop and with its spans. Both are called by the URLs that verifiers signs for shared
tool servers. A pair of calls is made back to back, so that whatever else the machine does hits both.

Apart: 256 worlds in one server with 50 calls each, 32 clients at once; every world's ledger must be what the same calls
give alone. Memory: the growth of that server by a world that was reset and then left alone, less what a bare object of
the same world takes.

OpenCode (with --opencode): the seconds of a turn with one tool call, of 4 rollouts at once, printed only.

Run: uv run python benchmarks/simulation.py [--json] [--opencode]
"""

import argparse
import asyncio
import json
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import aiohttp
import uvicorn
from mcp.client.client import Client
from mcp.server.mcpserver import MCPServer
from opencode_env.scripted_model import ScriptedModel, WorldsPolicy
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.ledger import Ledger
from opencode_simulation.samples.frozen_lake import FrozenLake

from benchmarks._child import ask, process
from benchmarks._measure import machine, percentile, report
from tests.simulation.served import SharedWorlds, shared_worlds
from tests.support.user_home import UserHome

GOALS = {"call_p50": 1.10, "call_p99": 1.25, "cross_talk": 0.0, "idle_world_kb": 200.0}
WORLDS_AT_ONCE = 64
ROUNDS = 60
MANY_WORLDS = 256
CALLS = 50
CLIENTS = 32
# No walk of random moves ends early: a lake without holes whose goal is far.
CONFIG = {"size": 30, "hole_share": 0.0, "max_moves": 100_000}
HEADERS = {"accept": "application/json, text/event-stream"}
DIRECTIONS = ("left", "down", "right", "up")


def lake() -> FrozenLake:
    """The lake behind the bare tool, and the bare object of the memory's baseline."""
    made = FrozenLake()
    made.reset(1, {**FrozenLake.default_config(), **CONFIG})
    return made


def serve_bare() -> None:
    """A bare server, in a process of its own; says its port."""
    mcp = MCPServer("bare")
    one = lake()

    @mcp.tool(structured_output=False)
    def move(direction: Literal["left", "down", "right", "up"]) -> str:
        """Move one field.

        Off the lake one stays where one is.
        """
        return str(one.step(direction).observation)

    for method in ("resources/list", "resources/templates/list", "resources/read"):
        mcp._lowlevel_server._request_handlers.pop(method, None)
    app = mcp.streamable_http_app(json_response=True, stateless_http=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="critical")).serve(sockets=[listener]))


def weigh_bare() -> None:
    """The memory of bare objects, in a process of their own; prints bytes for each."""
    before = rss("self")
    kept = [lake() for _ in range(MANY_WORLDS * 4)]
    print((rss("self") - before) / len(kept), flush=True)


def rss(pid: object) -> int:
    """Resident bytes of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Private_Clean")))


@asynccontextmanager
async def bare_server() -> AsyncIterator[str]:
    """The URL of a bare server."""
    async with process(__file__, "--bare") as child:
        assert child.stdout is not None
        port = int(await child.stdout.readline())
        yield f"http://127.0.0.1:{port}/mcp"


async def timed(client: Client, direction: str) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    result = await client.call_tool("move", {"direction": direction})
    seconds = time.perf_counter() - started
    assert not result.is_error, result
    return seconds


async def posted(session: aiohttp.ClientSession, url: str, number: int, direction: str) -> None:
    """One call, without the work of a whole MCP client for it."""
    params = {"name": "move", "arguments": {"direction": direction}}
    body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    async with session.post(url, json=body) as response:
        answer = await response.json()
    assert "error" not in answer, answer
    assert not answer["result"].get("isError"), answer


async def call_alternately(urls: dict[str, list[str]]) -> dict[str, list[float]]:
    """Seconds of the calls of one client for each URL: all kinds' first, all kinds' second, and so on."""
    source = random.Random(0)
    times: dict[str, list[float]] = {kind: [] for kind in urls}
    async with AsyncExitStack() as stack:
        clients = {
            kind: [await stack.enter_async_context(Client(url)) for url in places] for kind, places in urls.items()
        }
        for round_number in range(ROUNDS + 1):
            for seats in zip(*clients.values(), strict=True):
                order = list(zip(clients, seats, strict=True))
                source.shuffle(order)
                for kind, client in order:
                    seconds = await timed(client, source.choice(DIRECTIONS))
                    if round_number:  # the first round warms up
                        times[kind].append(seconds)
    return times


async def latency(served: SharedWorlds) -> tuple[dict[str, float], dict[str, str]]:
    """The ratios of a call's time, with 64 worlds in the server's process."""
    seats = [await served.seat(seed=number, config=CONFIG) for number in range(WORLDS_AT_ONCE)]
    async with bare_server() as bare_url, process(__file__, "--call") as clients:
        # As many clients of the bare server, with as long URLs.
        worlds = [seat.url for seat in seats]
        urls = {"bare": [f"{bare_url}?{urlsplit(url).query}" for url in worlds], "world": worlds}
        times = await ask(clients, json.dumps(urls))
    for seat in seats:
        await seat.finish()
    ratios = {f"call_p{n}": percentile(times["world"], n / 100) / percentile(times["bare"], n / 100) for n in (50, 99)}
    shown = {
        f"{kind} call (ms)": f"p50 {1e3 * percentile(values, 0.5):.2f}, p99 {1e3 * percentile(values, 0.99):.2f}"
        for kind, values in times.items()
    }
    return ratios, shown


def replayed(spec: EpisodeSpec, ledger: Ledger) -> bool:
    """Whether a bare object of the same world gives the same for the same calls."""
    one = FrozenLake()
    first = one.reset(spec.seed, {**FrozenLake.default_config(), **spec.config})
    given = [tuple(one.step(entry.arguments["direction"])) for entry in ledger.steps]  # type: ignore[arg-type]
    kept = [(entry.observation, entry.reward, entry.terminated, entry.truncated, entry.info) for entry in ledger.steps]
    return first == ledger.summary.first_observation and given == kept


async def crowd(served: SharedWorlds) -> tuple[dict[str, float], dict[str, str]]:
    """Many worlds at once: how many ledgers are not their replay, and the memory of an idle world."""
    assert served.server.runtime is not None
    (server,) = served.server.runtime._background  # type: ignore[attr-defined]
    before = rss(server.pid)
    specs = [EpisodeSpec(seed=number // 2, config=CONFIG) for number in range(MANY_WORLDS)]
    seats = [await served.seat(**spec.model_dump()) for spec in specs]
    idle = (rss(server.pid) - before) / MANY_WORLDS
    gate = asyncio.Semaphore(CLIENTS)

    async def play(session: aiohttp.ClientSession, url: str, source: random.Random) -> None:
        async with gate:
            for number in range(CALLS):
                await posted(session, url, number, source.choice(DIRECTIONS))

    started = time.perf_counter()
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        await asyncio.gather(*(play(session, seat.url, random.Random(n)) for n, seat in enumerate(seats)))
    seconds = time.perf_counter() - started
    ledgers = [await seat.finish() for seat in seats]
    assert all(len(ledger.steps) == CALLS for ledger in ledgers)
    wrong = [n for n, ledger in enumerate(ledgers) if not replayed(specs[n], ledger)]
    async with process(__file__, "--weigh") as child:
        assert child.stdout is not None
        bare = float(await child.stdout.readline())
    ratios = {"cross_talk": len(wrong) / MANY_WORLDS, "idle_world_kb": (idle - bare) / 1000}
    shown = {
        "crowd": f"{MANY_WORLDS} worlds of {CALLS} calls, {MANY_WORLDS * CALLS / seconds:.0f} calls/s",
        "idle world (KB)": f"{idle / 1000:.0f}, bare object {bare / 1000:.0f}",
    }
    return ratios, shown


async def through_opencode() -> dict[str, str]:
    """Seconds from a model's answer with one call to the next request, with 4 worlds at once."""
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "rows.jsonl"
        lakes = [
            {"id": str(n), "seed": n, "config": {"slippery": False, "hole_share": 0.1, "size": 6}} for n in range(4)
        ]
        rows.write_text("".join(json.dumps(row) + "\n" for row in lakes))
        async with ScriptedModel(WorldsPolicy()) as model:
            words = ("opencode-simulation", "--env.taskset.dataset", str(rows), "--env.taskset.task.server", "shared")
            done = await UserHome(Path(place)).run("turns", model.base_url, *words, "-c", "4")
        assert done.exit_code == 0, done.log
        turns = []
        by_session: dict[str | None, list[tuple[float, float]]] = {}
        for request in model.requests:
            session = request.headers.get("x-session-affinity")
            by_session.setdefault(session, []).append((request.received, request.finished or request.received))
        for calls in by_session.values():
            turns += [later[0] - earlier[1] for earlier, later in pairwise(calls)]
    return {"turn through OpenCode (s)": f"p50 {percentile(turns, 0.5):.3f}, p99 {percentile(turns, 0.99):.3f}"}


async def measure(*, opencode: bool) -> tuple[dict[str, float], dict[str, str]]:
    """All ratios, and what they are made of."""
    async with shared_worlds("frozen-lake") as served:
        more, more_shown = await crowd(served)  # first: its memory is that of a server which has played nothing
        ratios, shown = await latency(served)
    turns = await through_opencode() if opencode else {}
    return {**ratios, **more}, {**shown, **more_shown, **turns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--opencode", action="store_true", help="also play 4 worlds through OpenCode")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--call", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--weigh", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        serve_bare()
        return
    if options.call:
        print(json.dumps(asyncio.run(call_alternately(json.loads(sys.stdin.readline())))), flush=True)
        return
    if options.weigh:
        weigh_bare()
        return
    ratios, shown = asyncio.run(measure(opencode=options.opencode))
    report("simulation", ratios, GOALS, {**shown, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
