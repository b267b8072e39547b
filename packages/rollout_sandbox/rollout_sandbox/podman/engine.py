"""One call of the `podman` program on this machine, what it means when `podman run` fails, and containers' directories.

Cancelled, a call has ended before the cancellation goes on: asked to first, so that podman leaves its storage whole. Of
a container whose process was killed, a shell that waits for that end finds the name in those of directories.
"""

import asyncio
import contextlib
import functools
import os
import re
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.at_exit import run_at_exit
from rollout_sandbox.confined.process import PipeReader, pipes

_IMAGE = (
    r"image not known|initializing source|did not resolve to an alias|no such image|manifest unknown"
    r"|unable to copy from source|invalid reference format"
)
_ADVICE = {
    _IMAGE: "the image is not on this machine and cannot be pulled: name one that `podman pull {image}` fetches or "
    "that `podman images` lists (--env.agent.runtime.image; a local one is localhost/NAME:TAG)",
    r"executable file not found|no such file or directory: OCI runtime attempted": "the image holds no `sleep`, as "
    "which a container waits for its commands: use one with a shell",
    "setting rlimit": "podman may not raise its limits here: set lower ones in containers.conf, such as [containers] "
    'default_ulimits=["nofile=1024:1024","nproc=4096:4096"]',
    "(?i:cgroup)": 'on cgroup v1 podman wants runc: install it and set [engine] runtime="runc" in containers.conf',
    "": "try the same by hand: podman run --rm {image} true",
}
"""By what podman says: the first pattern that is found."""
_PASSING = re.compile(
    r"address already in use|database is locked|resource temporarily unavailable|resource busy", re.IGNORECASE
)


async def start(
    argv: Sequence[str], stdin: int, stdout: int, stderr: int, cwd: Path | None = None
) -> asyncio.subprocess.Process:
    """Start `podman` with `argv`, in a session of its own so that a Ctrl-C at the terminal does not reach it."""
    try:
        return await asyncio.create_subprocess_exec(
            "podman", *argv, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, cwd=cwd
        )
    except FileNotFoundError as error:
        raise SandboxError(
            "podman is not installed on this machine: install it (apt-get install podman), or choose another runtime "
            "(--env.agent.runtime.type)"
        ) from error
    except OSError as error:
        raise SandboxError(f"podman {argv[0]} could not be started: {error.strerror or error}") from error


async def call(
    *argv: str, end: Callable[[asyncio.subprocess.Process], Awaitable[None]] | None = None, cwd: Path | None = None
) -> ProgramResult:
    """Run `podman` to its end, in this process's directory or `cwd`; cancelled, it is ended by `end`, or asked to."""
    with contextlib.ExitStack() as stack:
        # Not asyncio's own pipes: podman leaves a monitor behind that may hold the other ends for as long as it likes.
        (out, stdout), (error, stderr) = pipes(2)
        for fd in (stdout, stderr):
            stack.callback(os.close, fd)
        output, complaint = (stack.enter_context(contextlib.closing(PipeReader(fd))) for fd in (out, error))
        process = await start(argv, subprocess.DEVNULL, stdout, stderr, cwd)
        try:
            code = await process.wait()
        except BaseException:
            await run_shielded((end or finish)(process))
            raise
        return ProgramResult(code, output.finish(), complaint.finish())


async def finish(process: asyncio.subprocess.Process) -> None:
    """End a call that is still running, by force if it does not go within ten seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10.0):
                await process.wait()


def is_passing(stderr: str) -> bool:
    """Whether the same call may work a moment later: several starts met on the way."""
    return _PASSING.search(stderr) is not None


def start_failure(image: str, exit_code: int, stderr: str) -> str:
    """The message of the error when `podman run` failed: what that means, and what to change."""
    advice = next(advice for pattern, advice in _ADVICE.items() if re.search(pattern, stderr)).format(image=image)
    said = stderr.strip()[-800:]
    return f"podman run of image {image!r} failed (exit code {exit_code}): {said}; {advice}"


def make_directory(container: str) -> Path:
    """Make the directory of the container with this name, `vf-` and what has no hyphen."""
    path = Path(_prefix() + container.removeprefix("vf-"))
    path.mkdir(mode=0o700)
    return path


@functools.cache
def _prefix() -> str:
    """The beginning of the names of this process's directories; starts the shell (once, 1 ms)."""
    prefix = f"{tempfile.gettempdir()}/vf-podman-{uuid.uuid4().hex}-"
    run_at_exit(["/bin/sh", str(Path(__file__).with_name("left_behind.sh")), prefix])
    return prefix
