"""Files of a container that differ from its image, kept on the host and put into a container of the same image.

Invariant: while they are read everything inside is paused. The programs that read and write them see the container's
files as its user does, run none of its code, and are not seen from inside (see `ContainerSupervisor`).
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.confined.process import ConfinedProcess
from rollout_sandbox.podman import engine
from rollout_sandbox.podman.container import Container
from rollout_sandbox.programs import program_text
from rollout_sandbox.toolbox.kept_files import KeptFiles, NotKept, keep, put

_PODMANS_OWN = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv")
_SYSTEMS = ("/dev/", "/proc/", "/sys/")


async def keep_files(container: Container, folder: Path, before: Path | None, most: int) -> tuple[KeptFiles, float]:
    """Keep what differs from the image, and what volumes and /dev/shm hold, while the container is paused."""
    begun = time.monotonic()
    async with _paused(container):
        mounts = _mounts(container.pid)
        roots = [path for path, writable in mounts.items() if writable]
        changed = await _changed(container, list(mounts))
        with _program(container, "list_and_send.py", json.dumps(roots), "[]") as process:
            kept = await keep(process, folder, before, most, changed)
        return kept, time.monotonic() - begun


async def put_files(container: Container, folder: Path) -> None:
    """Make what such a folder holds, in a container in which nothing has run yet."""
    with _program(container, "put_files.py") as process:
        await put(process, folder)


@contextlib.asynccontextmanager
async def _paused(container: Container) -> AsyncIterator[None]:
    answer = await engine.call("pause", container.name)
    if answer.exit_code != 0:
        raise NotKept(f"what ran in the container could not be held still: {answer.stderr.strip()[-200:]}")
    try:
        yield
    finally:
        await run_shielded(engine.call("unpause", container.name))


async def _changed(container: Container, mounts: list[str]) -> dict[str, bool]:
    """What differs from the image, by path, and whether the image's was taken away; mounted file systems left out."""
    answer = await engine.call("diff", "--format", "json", container.name)
    if answer.exit_code != 0:
        raise NotKept(f"podman does not tell what has changed: {answer.stderr.strip()[-200:]}")
    return await asyncio.to_thread(_read_changes, answer.stdout, tuple(f"{one}/" for one in mounts))


def _read_changes(told: str, mounted: tuple[str, ...]) -> dict[str, bool]:
    said = json.loads(told or "{}")
    found = {path: kind == "deleted" for kind in ("changed", "added", "deleted") for path in said.get(kind) or ()}
    return {path: found[path] for path in sorted(found) if not f"{path}/".startswith(mounted)}


def _mounts(pid: int) -> dict[str, bool]:
    """The file systems that are mounted over the container's own, and whether its files are kept: /dev/shm and what can
    be written of volumes."""
    found: dict[str, bool] = {}
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        point, options = line.split(" ")[4:6]
        path = point.encode().decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
        own = path in _PODMANS_OWN or f"{path}/".startswith(_SYSTEMS)
        if path != "/":
            found[path] = path == "/dev/shm" or (not own and "rw" in options.split(","))
    return found


def _program(container: Container, name: str, *operands: str) -> contextlib.closing[ConfinedProcess]:
    """One of our programs, which the container's supervisor runs on its files, and which ends with its streams."""
    return contextlib.closing(ConfinedProcess(container.channel, "program", program_text(name), *operands))
