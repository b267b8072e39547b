"""What the engine of a local container says about it, without any program inside.

Invariant: nothing here runs in the container, so an agent that is root there and replaced its programs can neither
forge an answer nor keep one from being given.
"""

import asyncio
import contextlib
import subprocess
import tarfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import verifiers.v1 as vf

from rollout_sandbox.compat import abilities_of

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
    """Of the archive that a command prints, no more than the head of its first member is read (blocking)."""
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
