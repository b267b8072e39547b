"""Runs a program of ours in the sandbox: for a limited time, with its failure told from the sandbox's end.

Container engines report a vanished container as an ordinary non-zero exit. Before a failure is blamed on the policy,
one bounded probe decides whether there is still a sandbox to blame it on; of a local container its engine is asked,
because an agent that is root inside can have replaced whatever would be run there.

What is kept of a program's output is bounded while it streams. verifiers' local containers collect whatever comes, so
there the engine's client is read here.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import tarfile
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import verifiers.v1 as vf
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.compat import abilities_of, exec_command
from rollout_sandbox.toolbox.scoring import causes, command_time, exempt, is_exempt

OUT_OF_TIME = 124
"""The exit code of a program that did not end in its time, as of `timeout`."""
_LIMIT_BYTES = 8 << 20
"""The most that is kept of each stream; a program that prints more is given up, with the exit code of a SIGKILL."""
_KILLED = 137
_CHUNK_BYTES = 1 << 16


async def is_alive(runtime: vf.Runtime) -> bool:
    """Whether the sandbox still runs; one that gives no answer in 30 seconds does not."""
    engine = engine_of(runtime)
    if engine is not None:
        return await engine.is_running()
    try:
        async with asyncio.timeout(30.0):
            return bool(await runtime.alive())
    except TimeoutError:
        return False


async def require_alive(runtime: vf.Runtime, doing: str) -> None:
    """Return if the sandbox still runs, else raise a `SandboxError` that says what was `doing`."""
    if not await is_alive(runtime):
        raise exempt(vf.SandboxError(f"sandbox {runtime.name!r} is gone while {doing}"))


async def is_infrastructure(error: Exception, runtime: vf.Runtime | None) -> bool:
    """Whether an error in scoring a rollout, whose sandbox is `runtime`, says nothing of what the agent made: it is
    `exempt`, or the sandbox's own service failed, or the sandbox is gone."""
    if is_exempt(error):
        return True
    failed = [one for one in causes(error) if isinstance(one, vf.SandboxError)]
    if not failed:
        return False
    if runtime is None or not abilities_of(runtime).agent_can_cause(failed[0]):
        return True
    return not await is_alive(runtime)


async def run_for(
    runtime: vf.Runtime, argv: Sequence[str], seconds: float, failure: str, env: Mapping[str, str] | None = None
) -> vf.ProgramResult:
    """Run `argv` for at most `seconds`; out of time, the result has the exit code `OUT_OF_TIME`.

    What it started in the sandbox may still run then. `failure` says what has failed in the message of an error. The
    time is the agent's in the sandbox that it had: it made what the command meets there, and may have made the command.
    """
    try:
        with command_time(runtime):
            async with asyncio.timeout(seconds) as limit:
                client = exec_command(runtime, dict(env or {}))
                if client is None:
                    return await runtime.run(list(argv), dict(env or {}))
                return await _collected([*client, *argv])
    except TimeoutError as error:
        if not limit.expired():
            raise vf.SandboxError(f"{failure}: sandbox {runtime.name!r} timed out: {error}") from error
    except vf.SandboxError as error:
        raise type(error)(f"{failure}: {error}") from error  # retry rules go by its type
    return vf.ProgramResult(exit_code=OUT_OF_TIME, stdout="", stderr=f"did not end within {seconds:g} s")


async def run_checked(
    runtime: vf.Runtime,
    argv: Sequence[str],
    failure: str,
    *,
    seconds: float = 60.0,
    accepted: Collection[int] = (0,),
    error: type[vf.RolloutError] = vf.SandboxError,
    advice: str = "",
) -> vf.ProgramResult:
    """The result of `argv`, of which a shell parses nothing, and whose exit code is one of `accepted`.

    Args:
        failure: What has failed when this fails, to open the message: "workdir '/x' cannot be made".
        seconds: When it is given up; `accepted` may hold `OUT_OF_TIME`.
        error: What a failure is in a sandbox that is still alive.
        advice: What to change, at the end of the message.

    Raises:
        RolloutError: `error`, with the exit code and the last of what the program said.
    """
    result = await run_for(runtime, argv, seconds, failure)
    answered = result.exit_code in accepted
    # What came too late may come from a dead sandbox, too.
    if answered and result.exit_code != OUT_OF_TIME:
        return result
    if not await is_alive(runtime):
        raise exempt(vf.SandboxError(f"sandbox {runtime.name!r} is gone: {failure}"))
    if answered:
        return result
    said = (result.stderr.strip() or result.stdout.strip())[-500:]
    message = f"{failure} (exit code {result.exit_code})" + (f": {said}" if said else "")
    raise error(f"{message}; {advice}" if advice else message)


async def _collected(command: Sequence[str]) -> vf.ProgramResult:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            heads = [group.create_task(_head(stream)) for stream in (process.stdout, process.stderr)]
        result = vf.ProgramResult(await process.wait(), heads[0].result(), heads[1].result())
    except* _TooMuchOutput:
        result = vf.ProgramResult(_KILLED, "", f"ended because it printed over {_LIMIT_BYTES} bytes")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await run_shielded(_reaped(process))
    return result


async def _reaped(process: asyncio.subprocess.Process) -> None:
    """Wait for a killed client; what is left in its pipes is dropped as it is read."""
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_CHUNK_BYTES):
            pass
    await process.wait()


class _TooMuchOutput(Exception):
    """A stream is over the limit."""


async def _head(stream: asyncio.StreamReader) -> str:
    data = bytearray()
    while block := await stream.read(_CHUNK_BYTES):
        data += block
        if len(data) > _LIMIT_BYTES:
            raise _TooMuchOutput
    return data.decode(errors="replace")


_SECONDS = 60.0


@dataclass(frozen=True)
class ContainerEngine:
    """The engine's command line and one of its containers."""

    program: str
    container: str

    async def is_running(self) -> bool:
        """Whether the container is there and runs; False if the engine gives no answer in 30 seconds."""
        argv = [self.program, "inspect", "--format", "{{.State.Running}}", self.container]
        try:
            done = await asyncio.to_thread(
                subprocess.run, argv, capture_output=True, timeout=30.0, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and done.stdout.strip() == b"true"

    async def regular_file(self, path: str, max_bytes: int) -> "bytes | str":
        """The content of the file at the absolute `path`, or in one word why there is none to be had: `absent`,
        `symlink`, `not_a_file`, `oversized`."""
        argv = [self.program, "cp", f"{self.container}:{path}", "-"]
        return await asyncio.to_thread(_first_member, argv, PurePosixPath(path).name, max_bytes)


def engine_of(runtime: vf.Runtime) -> ContainerEngine | None:
    """The engine of a container on this machine; None for other sandboxes."""
    found = abilities_of(runtime).container
    return None if found is None else ContainerEngine(*found)


def _first_member(argv: Sequence[str], name: str, max_bytes: int) -> bytes | str:
    """Read no more than the head of the first member of the archive that a command prints (blocking)."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    late = threading.Timer(_SECONDS, process.kill)  # the engine waits for what an agent put where it reads itself
    late.start()
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|", errorlevel=2) as archive:
            member = archive.next()
            if member is None:
                return "absent"
            # A link is followed by podman, which then names its target, and shown as it is by docker.
            if member.issym() or PurePosixPath(member.name).name != name:
                return "symlink"
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                return "not_a_file"
            return "oversized" if member.size > max_bytes else content.read(max_bytes)
    except (tarfile.TarError, OSError, EOFError):
        return "absent"
    finally:
        late.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.stdout.close()
        process.wait()
