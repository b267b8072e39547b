"""Commands of one container, ended with all that they started; and its files, which commands read and write.

Invariant: of the image's own `sh`, `head` and `cat`, or whatever program stands under those names, the host takes no
more than it asked for, and waits for nothing but a regular file.
"""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from functools import partial

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.confined.files import READ_LIMIT_BYTES
from rollout_sandbox.confined.process import BoundedOutput, PipedProcess, pipes
from rollout_sandbox.confined.supervisor.processes import COMMAND_VARIABLE
from rollout_sandbox.podman import engine
from rollout_sandbox.podman.container import Container
from rollout_sandbox.programs import program_argv

_BACKGROUND = 'log=$1; shift; exec "$@" >"$log" 2>&1 </dev/null'


class PodmanProcess(PipedProcess):
    """One command of a container with its stdin open.

    Exit codes are those of `podman exec`: 128 and the signal's number for a signal, 127 and 126 for a program that is
    missing or not executable, with the reason on stderr.

    Args:
        command: its identity, by which the supervisor finds what it started.
        client: the `podman exec` that was started for it.
        fds: our ends of stdin, stdout, stderr; owned from now on.
    """

    def __init__(
        self, container: Container, command: str, client: asyncio.subprocess.Process, fds: tuple[int, int, int]
    ) -> None:
        super().__init__(fds)
        self._container = container
        self._command = command
        self._client = client

    async def wait(self) -> int:
        code = await self._client.wait()
        if code != 0:
            self._container.require_alive("a process of it was waited for")
        return code

    async def poll(self) -> int | None:
        return self._client.returncode

    async def terminate(self) -> None:
        """Send SIGTERM to the process and everything it started."""
        if self._client.returncode is None:
            await self._container.channel.request("signal", self._command, str(int(signal.SIGTERM)))

    async def kill(self) -> None:
        """Kill the process and everything it started; nothing of it is left on return."""
        if self._client.returncode is None:
            await run_shielded(end_command(self._container, self._command, self._client))

    async def release(self) -> None:
        """End the `podman exec` of a process that is over or whose container is gone, and its streams; idempotent."""
        await engine.finish(self._client)
        self.close()


async def end_command(container: Container, command: str, client: asyncio.subprocess.Process) -> None:
    """Kill everything that a command started, and its `podman exec`, which may be about to start it."""
    for _ in range(30):
        with contextlib.suppress(SandboxError):  # the container may be gone
            await container.channel.request("end", command)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.wait()
                return
    await engine.finish(client)
    with contextlib.suppress(SandboxError):
        await container.channel.request("end", command)


def without_proxy(env: Mapping[str, str], image_env: Mapping[str, str]) -> dict[str, str]:
    """`env`, in which a proxy of the image's or the task's is not asked for what is reached on the loopback."""
    seen = {**image_env, **env}
    if not any(name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name in seen):
        return dict(env)
    named = [entry.strip() for name in ("NO_PROXY", "no_proxy") for entry in seen.get(name, "").split(",")]
    exceptions = ",".join(dict.fromkeys(entry for entry in (*named, "localhost", "127.0.0.1") if entry))
    return {**env, "NO_PROXY": exceptions, "no_proxy": exceptions}


class Commands:
    """Runs programs of one container; a `user` of None is the image's own."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._processes: list[PodmanProcess] = []

    async def _arguments(self, env: Mapping[str, str], user: str | None, command: str = "", *mode: str) -> list[str]:
        """What comes before the words of a command, by whose identity the supervisor finds what it started; podman will
        not have to wait for what an agent that is root has put in the place of the accounts."""
        await self._container.channel.request("accounts")
        settings = without_proxy(env, self._container.image_env)
        marked = {**settings, COMMAND_VARIABLE.decode(): command} if command else settings
        variables = [word for name, value in marked.items() for word in ("--env", f"{name}={value}")]
        place = ("--workdir", self._container.options.workdir, self._container.name)
        return ["exec", *mode, *variables, *(("--user", user) if user else ()), *place]

    async def run(self, argv: Sequence[str], env: Mapping[str, str], user: str | None = None) -> ProgramResult:
        """Run a command to its end; its output is kept in bounded memory. Cancelling ends its whole tree before the
        cancellation goes on."""
        command = uuid.uuid4().hex
        ended = partial(end_command, self._container, command)
        result = await engine.call(*await self._arguments(env, user, command), *argv, end=ended)
        if result.exit_code != 0:
            self._container.require_alive("a command ran in it")
        return result

    async def open(
        self, argv: Sequence[str], env: Mapping[str, str], user: str | None = None, *, interactive: bool = True
    ) -> PodmanProcess:
        """Start a process whose three streams stay open; not `interactive`, its stdin is empty."""
        command = uuid.uuid4().hex
        mode = ["--interactive"] if interactive else []
        arguments = [*await self._arguments(env, user, command, *mode), *argv]
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            (stdin, to), (out, stdout), (error, stderr) = pipes(3)
            for fd in (stdin, stdout, stderr):
                theirs.callback(os.close, fd)
            for fd in (to, out, error):
                ours.callback(os.close, fd)
            client = await engine.start(arguments, stdin, stdout, stderr)
            ours.pop_all()
        process = PodmanProcess(self._container, command, client, (to, out, error))
        self._processes.append(process)
        return process

    async def background(self, argv: Sequence[str], env: Mapping[str, str], log: str, user: str | None = None) -> None:
        """Start a process that nobody waits for, with its output in the file `log` inside."""
        arguments = await self._arguments(env, user, "", "--detach")
        answer = await engine.call(*arguments, "sh", "-c", _BACKGROUND, "background", log, *argv)
        if answer.exit_code != 0:
            self._container.require_alive("a process was started in the background")
            raise SandboxError(f"{argv[0]!r} could not be started in the background: {answer.stderr.strip()[-500:]}")

    async def close(self) -> None:
        """Release live processes of a container that is gone; idempotent."""
        processes, self._processes = self._processes, []
        for process in processes:
            await process.release()


async def read_file(commands: Commands, path: str, max_bytes: int | None, user: str | None) -> bytes:
    """Return the first `max_bytes` bytes of a regular file, or all of it if that is at most `READ_LIMIT_BYTES`."""
    limit = READ_LIMIT_BYTES + 1 if max_bytes is None else max_bytes
    process = await commands.open(program_argv("read_file.sh", path, str(limit)), {}, user, interactive=False)
    code, data, error = await _exchange(process, b"", limit)
    if code != 0 and len(data) <= limit:
        raise SandboxError(f"read {path!r}: {error}")
    if max_bytes is None and len(data) > READ_LIMIT_BYTES:
        raise SandboxError(f"read {path!r}: over {READ_LIMIT_BYTES} bytes; give max_bytes")
    return data[:limit]


async def write_file(commands: Commands, path: str, data: bytes, user: str | None) -> None:
    """Write the regular file at `path`, or the one that a symlink there leads to; make its parents."""
    process = await commands.open(program_argv("write_file.sh", path), {}, user)
    code, _, error = await _exchange(process, data, 0)
    if code != 0:
        raise SandboxError(f"write {path!r}: {error}")


async def _exchange(process: PodmanProcess, data: bytes, limit: int) -> tuple[int, bytes, str]:
    """Feed `data` to a process; its exit code, its output and the end of its stderr. A process that prints more than
    `limit` bytes is ended there, and `limit` + 1 of them are returned."""
    output = bytearray()
    error = BoundedOutput(limit_bytes=3000)

    async def feed() -> None:
        with contextlib.suppress(OSError):  # it ended without reading all, and its exit code says why
            await process.write(data)
        process.close_stdin()

    async def collect() -> None:
        async for chunk in process.stdout:
            output.extend(chunk[: limit + 1 - len(output)])
            if len(output) > limit:
                await process.kill()
                return

    async def collect_error() -> None:
        async for chunk in process.stderr:
            error.feed(chunk)

    try:
        await asyncio.gather(feed(), collect(), collect_error())
        return await process.wait(), bytes(output), error.text().strip()
    except BaseException:
        await process.kill()
        raise
    finally:
        await process.release()
