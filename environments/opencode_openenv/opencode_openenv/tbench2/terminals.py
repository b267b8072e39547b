"""Commands of one sandbox: run to their end within a time limit, or live beside each other under names.

A command reaches the shell as one argument, so no quote or here-document in it is read by anything else; and when its
time is up, it has ended with all that it started.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterable
from dataclasses import dataclass

import verifiers.v1 as vf
from rollout_sandbox.compat import abilities_of, start_process
from rollout_sandbox.toolbox.checked_run import OUT_OF_TIME, run_for
from rollout_sandbox.toolbox.command import MARK_VARIABLE, end_marked
from verifiers.v1.runtimes import RuntimeProcess

MAX_OUTPUT_CHARS = 100_000
"""The most of a command's output that an observation holds, counted from its end."""
MAX_WAIT_SECONDS = 600.0
WRITE_SECONDS = 20.0
"""How long a session may take to read what it is sent."""
MAX_SESSIONS = 32
"""Sessions that may be live or unread at once."""
_MERGED = "exec 2>&1; "


@dataclass(frozen=True)
class CommandOutput:
    """Holds what a command did; no exit code means that its time was up."""

    output: str
    exit_code: int | None


def shortened(output: str) -> str:
    if len(output) <= MAX_OUTPUT_CHARS:
        return output
    return f"[{len(output) - MAX_OUTPUT_CHARS} characters left out]\n{output[-MAX_OUTPUT_CHARS:]}"


class _Live:
    """One live process and what it printed that nobody has seen."""

    def __init__(self, process: RuntimeProcess) -> None:
        self.process = process
        self._unseen = bytearray()
        self._left_out = 0
        self._readers = [asyncio.create_task(self._read(stream)) for stream in (process.stdout, process.stderr)]

    async def _read(self, stream: AsyncIterable[bytes]) -> None:
        with contextlib.suppress(vf.SandboxError):  # found out by the next command
            async for chunk in stream:
                self._unseen += chunk
                if (over := len(self._unseen) - 4 * MAX_OUTPUT_CHARS) > 0:
                    del self._unseen[:over]
                    self._left_out += over

    def take(self) -> str:
        """Return what it printed since the last time."""
        text = bytes(self._unseen).decode(errors="replace")
        note = f"[{self._left_out} bytes left out]\n" if self._left_out else ""
        self._unseen.clear()
        self._left_out = 0
        return shortened(note + text)

    async def ended(self, seconds: float) -> int | None:
        """Its exit code once it has ended; None if it has not within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                code = await self.process.wait()
                await asyncio.gather(*self._readers)
                return code
        return await self.process.poll()

    async def end(self) -> None:
        await self.process.kill()
        await asyncio.wait(self._readers, timeout=1.0)
        for reader in self._readers:
            reader.cancel()


class Terminals:
    """The commands of one sandbox, which start in its work directory. A session that there is not, that has ended or
    that does not read is a `ValueError` with its name."""

    def __init__(self, runtime: vf.Runtime) -> None:
        self._runtime = runtime
        self._live: dict[str, _Live] = {}

    async def run(self, command: str, seconds: float) -> CommandOutput:
        """Run a command with bash to its end, standard input empty, for at most `seconds`."""
        argv = ["bash", "-c", "exec </dev/null; " + await self._text(command)]
        if not abilities_of(self._runtime).can_end_agent:
            # Killing a process would not end all that it started.
            mark, started = uuid.uuid4().hex, time.monotonic()
            argv, limit = ["timeout", "-k", "2", f"{seconds:g}", *argv], seconds + 10.0
            result = await run_for(self._runtime, argv, limit, "the command could not be run", {MARK_VARIABLE: mark})
            if time.monotonic() - started < seconds or result.exit_code not in (OUT_OF_TIME, 137, 143):
                return CommandOutput(shortened(result.stdout + result.stderr), result.exit_code)
            await end_marked(self._runtime, mark, command)
            return CommandOutput(shortened(result.stdout), None)
        live, code = _Live(await start_process(self._runtime, argv, {})), None
        try:
            code = await live.ended(seconds)
        finally:
            if code is None:
                await live.end()
        return CommandOutput(live.take(), code)

    async def start(self, name: str, command: str) -> None:
        """Start a live session, unless one of that name lives or there are too many."""
        known = self._live.get(name)
        if known is not None and await known.process.poll() is None:
            raise ValueError(f"session {name!r} still runs: kill it first, or name another session_id")
        if known is None and len(self._live) >= MAX_SESSIONS:
            raise ValueError(f"there are {MAX_SESSIONS} sessions, and more are not kept: kill one first")
        self._live[name] = _Live(await start_process(self._runtime, ["bash", "-c", await self._text(command)], {}))

    async def write(self, name: str, text: str) -> None:
        process = self._session(name).process
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await process.write((text if text.endswith("\n") else f"{text}\n").encode())
        except TimeoutError as error:
            raise ValueError(
                f"session {name!r} did not read the input within {WRITE_SECONDS:g} s; a part of it may have arrived"
            ) from error
        except (BrokenPipeError, ConnectionError) as error:
            raise ValueError(f"session {name!r} has ended or reads no more input") from error

    async def view(self, name: str, seconds: float = 0.0) -> CommandOutput:
        """Return what a live session has printed, after at most `seconds` of waiting for its end."""
        if seconds > MAX_WAIT_SECONDS:
            raise ValueError(f"wait_seconds is {seconds:g}, and at most {MAX_WAIT_SECONDS:g} are waited")
        session = self._session(name)
        code = await session.ended(seconds)
        return CommandOutput(session.take(), code)

    async def kill(self, name: str) -> CommandOutput:
        """End a live session; what it had printed."""
        session = self._session(name)
        await session.end()
        del self._live[name]
        return CommandOutput(session.take(), await session.process.poll())

    async def end_all(self) -> None:
        for session in self._live.values():
            with contextlib.suppress(vf.SandboxError):  # then nothing of it lives either
                await session.end()
        self._live.clear()

    def _session(self, name: str) -> _Live:
        session = self._live.get(name)
        if session is None:
            known = ", ".join(sorted(self._live)) or "none"
            raise ValueError(f"there is no session {name!r} (there are: {known}): start it with exec and block = false")
        return session

    async def _text(self, command: str) -> str:
        """The command as bash gets it; one that is too long for an argument lies in a file."""
        if "\0" in command:
            raise ValueError("the command holds a NUL character, which no shell takes")
        if len(command.encode()) <= 100_000:
            return _MERGED + command
        path = f"/tmp/.command-{uuid.uuid4().hex}"
        await self._runtime.write(path, command.encode())
        return f"{_MERGED}exec bash {path}"
