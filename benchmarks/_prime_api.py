"""The tests' server that speaks Prime's API, with delays, in a process of its own: a program of its own.

Behind its sandboxes are light boxes (`_light_boxes.py`), or with `--image` confined ones whose image holds OpenCode. It
prints `READY` and, as JSON, the variables that lead the SDK to it. On standard input it takes `begin` (count from here
on) and `seen` (what was counted since), each answered by one line of JSON, and the end of the input as its own.

Run: python benchmarks/_prime_api.py --agents SOCKET --at-once 256
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from rollout_sandbox.confined import Bind

from benchmarks._light_boxes import Agents, LightBox
from tests.support.prime_api import Fault, Plan, PrimeApi

LOOK_SECONDS = 0.1
CREATE_SECONDS, BOOT_SECONDS, DELETE_SECONDS, REQUEST_SECONDS = 0.5, 1.5, 0.3, 0.05
"""The answer to a creation; from then to the sandbox's being up; a deletion; any other request."""
FOR_EVER = 1 << 60


class Watch:
    """Counts requests, and apart those that come while all agents play."""

    def __init__(self, api: PrimeApi, agents: Agents, at_once: int) -> None:
        self._api = api
        self._agents = agents
        self._at_once = at_once
        self._times: list[float] = []
        self.begin()

    def begin(self) -> None:
        """Forget what was counted."""
        self._before = Counter(self._api.requests)
        self._first_sandbox = len(self._api.sandboxes)
        self._waiting = self._while_waiting = 0.0

    async def run(self) -> None:
        """Watch."""
        while True:
            requests, started = self._api.requests.total(), time.monotonic()
            full = self._agents.playing >= self._at_once
            await asyncio.sleep(LOOK_SECONDS)
            if full and self._agents.playing >= self._at_once:
                self._waiting += time.monotonic() - started
                self._while_waiting += self._api.requests.total() - requests

    def seen(self) -> dict[str, Any]:
        """Requests by name, sandboxes asked for and living, and seconds and requests while all agents played."""
        return {
            "requests": dict(self._api.requests - self._before),
            "sandboxes": len(self._api.sandboxes) - self._first_sandbox,
            "living": len(self._api.living),
            "waiting_seconds": self._waiting,
            "waiting_requests": self._while_waiting,
        }


async def obey(watch: Watch) -> None:
    """Do what standard input says, to its end."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while order := (await lines.readline()).decode().strip():
        if order == "begin":
            watch.begin()
        print(json.dumps(watch.seen()), flush=True)


def images(name: str) -> dict[str, list[Bind]]:
    """An image that holds OpenCode."""
    build = ensure_build(DEFAULT_VERSION, host_platform())
    return {name: [Bind(build.directory, f"/opencode/{build.directory.name}")]}


async def serve(options: argparse.Namespace) -> None:
    """Serve until the orders end."""
    agents = Agents(options.agents)
    made = PrimeApi(images(options.image)) if options.image else PrimeApi(box_of=lambda *_: LightBox(agents))
    async with made as api:
        api.plan(Plan(boot_s=BOOT_SECONDS))
        slow = {"create": CREATE_SECONDS, "delete": DELETE_SECONDS, "*": REQUEST_SECONDS}
        api.add(*(Fault(route, delay=seconds, times=FOR_EVER) for route, seconds in slow.items()))
        watch = Watch(api, agents, options.at_once)
        watching = asyncio.create_task(watch.run())
        print("READY " + json.dumps(api.environment), flush=True)
        await obey(watch)
        watching.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=Path, default=Path("none"))
    parser.add_argument("--at-once", type=int, default=FOR_EVER)
    parser.add_argument("--image", default="")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
