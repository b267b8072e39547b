"""What stands behind the sandboxes of `_prime_api.py` when hundreds run at once: no process at all.

A light box knows what our environment asks of a sandbox, and answers as the programs there would: `remote_run.sh` with
the output and the end of a command, `remote_end.sh` by ending it, the list of processes with one line. The agent's
program is played by `_simulated_agents.py`, over its socket. Everything else succeeds without a word; files are kept
and not looked at. What the scripts themselves do is proven elsewhere, by tests with a confined sandbox behind each.
"""

import asyncio
import contextlib
import json
import shlex
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = "/simulated/program.py"
"""The agent's program, as the harness calls it."""
_KILLED = 137
_PROCESSES = b"namespace=pid:[1]\n1 1 -\n"


@dataclass
class Agents:
    """Those that play now.

    Args:
        path: the socket of `_simulated_agents.py`.
    """

    path: Path
    playing: int = 0

    async def play(self, number: str, round_name: str, url: str, secret: str) -> int:
        """Play one to its end and return its exit code."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        self.playing += 1
        try:
            wanted = {"number": int(number), "round": round_name, "url": url, "secret": secret}
            writer.write(json.dumps(wanted).encode() + b"\n")
            said = await reader.readline()
        finally:
            self.playing -= 1
            writer.close()
        return int(said) if said else _KILLED


Ended = tuple[int, bytes]
"""Exit code and standard output."""


class LightProcess:
    """A process that is only its output and its end."""

    def __init__(self, work: Coroutine[Any, Any, bytes], code: Callable[[], int]) -> None:
        self._code = code
        self.stdout = self._said(asyncio.ensure_future(work))
        self.stderr = self._nothing()

    async def _said(self, work: "asyncio.Future[bytes]") -> AsyncIterator[bytes]:
        yield b"1\n"
        if said := await work:
            yield said

    async def _nothing(self) -> AsyncIterator[bytes]:
        empty: tuple[bytes, ...] = ()
        for nothing in empty:
            yield nothing

    async def wait(self) -> int:
        """The exit code."""
        return self._code()

    async def write(self, data: bytes) -> None:
        """Take input, which nobody reads."""


class LightBox:
    """One sandbox.

    Args:
        agents: who plays its agent.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._commands: dict[str, asyncio.Future[Ended]] = {}

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """End what runs."""
        for command in self._commands.values():
            command.cancel()
        await asyncio.gather(*self._commands.values(), return_exceptions=True)

    async def exec(self, argv: list[str], env: dict[str, str]) -> LightProcess:
        """Run a command line of the SDK's, which is the last word."""
        words = shlex.split(argv[-1])
        called = words[3:4] if words[:2] == ["sh", "-c"] else []
        if called == ["remote-run"]:
            return LightProcess(self._run(words[4], words[6:]), lambda: 0)
        if called == ["remote-end"]:
            self._end(words[4])
        return LightProcess(self._silent(), lambda: 0)

    async def run(self, argv: list[str], env: dict[str, str]) -> None:
        """Signals, which no test of a light box sends."""

    async def write(self, path: str, data: bytes) -> None:
        """Take a file."""

    async def read_answer(self, path: str, limit: int) -> bytes | str:
        """There is no file."""
        return "absent"

    async def _silent(self) -> bytes:
        return b""

    async def _run(self, directory: str, command: list[str]) -> bytes:
        """What `remote_run.sh` prints."""
        if command[0].startswith("wait="):
            if directory not in self._commands:
                return b"lost\n"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._commands[directory]), float(command[0][len("wait=") :]))
            if not self._commands[directory].done():
                return b"running\n"
        else:
            self._commands[directory] = asyncio.ensure_future(self._ended(command))
        code, said = await asyncio.shield(self._commands[directory])
        return b"ended %d %d 0\n%b" % (code, len(said), said)

    async def _ended(self, command: list[str]) -> Ended:
        if PROGRAM in command:
            code = await self._agents.play(*command[command.index(PROGRAM) + 1 :])
            return code, repr(time.monotonic()).encode()
        return 0, _PROCESSES if "namespace=" in " ".join(command) else b""

    def _end(self, mark: str) -> None:
        if (command := self._commands.get(f"/tmp/.vf-run-{mark.rpartition('=')[2]}")) is not None:
            command.cancel()
