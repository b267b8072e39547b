"""A shell of ours in a container whose agent is root and can have replaced the container's own.

Invariant: what is put in place are statically linked programs of this machine, carried in by the container's engine
after the agent ended. No program of the container has a part in it, and no library is loaded by them. Where there is no
such shell or engine, the container's own shell is used, and nothing is promised.
"""

import asyncio
import io
import os
import secrets
import shutil
import struct
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import verifiers.v1 as vf

from rollout_sandbox.toolbox.container_engine import ContainerEngine, engine_of

# The shell is bash and not busybox's, which would use its own applets for everything that an image may have better.
_SHELL, _TOOLS = "bash-static", "busybox"
_APPLETS = ("cat", "cmp", "chmod", "false", "mkdir", "mktemp", "rm", "sleep", "timeout", "true")
_SECONDS = 60.0
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_PT_INTERP = 3


async def put_own_shell(runtime: vf.Runtime) -> str:
    """The directory in a container of this machine that now holds our programs; empty where that cannot be."""
    engine, shell = engine_of(runtime), _static(_SHELL)
    if engine is None or shell is None:
        return ""
    directory = f".scoring-{secrets.token_hex(8)}"
    archive = await asyncio.to_thread(_archive, shell, _static(_TOOLS), directory)
    return f"/{directory}" if await asyncio.to_thread(_copied, engine, archive) else ""


def _copied(engine: ContainerEngine, archive: bytes) -> bool:
    copying = [engine.program, "cp", "-", f"{engine.container}:/"]
    # podman 4 stores what it is given in a temporary file, and leaves it there.
    with tempfile.TemporaryDirectory(prefix="vf-own-shell-") as scratch:
        env = {**os.environ, "TMPDIR": scratch}
        try:
            done = subprocess.run(copying, input=archive, capture_output=True, timeout=_SECONDS, check=False, env=env)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0


@cache
def _static(name: str) -> Path | None:
    """A program of this machine that needs no library."""
    found = shutil.which(name)
    return Path(found) if found and is_static(Path(found)) else None


def is_static(program: Path) -> bool:
    """Whether an executable (64 bit, little-endian) names no interpreter, which would load libraries for it."""
    with program.open("rb") as file:
        header = file.read(64)
        if len(header) < 64 or not header.startswith(_ELF64_LITTLE):
            return False
        (offset,) = struct.unpack_from("<Q", header, 0x20)
        size, count = struct.unpack_from("<HH", header, 0x36)
        file.seek(offset)
        table = file.read(size * count)
    return all(struct.unpack_from("<I", table, size * number)[0] != _PT_INTERP for number in range(count))


def _archive(shell: Path, tools: Path | None, directory: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:

        def add(name: str, kind: bytes, data: bytes = b"", target: str = "") -> None:
            member = tarfile.TarInfo(f"{directory}/{name}".rstrip("/"))
            member.type, member.mode, member.size, member.linkname = kind, 0o755, len(data), target
            archive.addfile(member, io.BytesIO(data))

        add("", tarfile.DIRTYPE)
        add("sh", tarfile.REGTYPE, shell.read_bytes())
        if tools is not None:
            add(_TOOLS, tarfile.REGTYPE, tools.read_bytes())
            for name in _APPLETS:
                add(name, tarfile.SYMTYPE, target=_TOOLS)
    return made.getvalue()
