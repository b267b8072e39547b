"""A directory of the host as one archive, which travels with a task's data and is unpacked in a sandbox.

Invariant: equal directories give equal archives (no times, no owners, names in order), and no archive holds anything
but files, directories and links that stay inside it.
"""

import base64
import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import verifiers.v1 as vf

from agent_sandbox.programs import program_argv
from agent_sandbox.toolbox.archives import unpack_archive
from agent_sandbox.toolbox.checked_run import run_checked

MAX_BYTES = 64 << 20
"""The most that the files of a packed directory may hold together."""

_IGNORED = {".DS_Store", ".git", "__pycache__"}
_SECONDS = 300.0


def pack_directory(directory: Path) -> str:
    """The directory as base64 of a gzipped tar archive.

    Raises:
        ValueError: it holds more than `MAX_BYTES`, a special file, or a link that leads out of it.
    """
    packed, total = io.BytesIO(), 0
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in _members(directory):
            member = archive.gettarinfo(path, path.relative_to(directory).as_posix())
            _require_plain(member, path)
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o111 else 0o644
            if not member.isreg():
                archive.addfile(member)
                continue
            total += member.size
            if total > MAX_BYTES:
                raise ValueError(f"{directory} holds more than {MAX_BYTES >> 20} MiB, which is too much for a task")
            with path.open("rb") as content:
                archive.addfile(member, content)
    return base64.b64encode(packed.getvalue()).decode("ascii")


def _members(directory: Path) -> Iterator[Path]:
    for found in sorted(directory.iterdir(), key=lambda path: path.name):
        if found.name in _IGNORED:
            continue
        yield found
        if found.is_dir() and not found.is_symlink():
            yield from _members(found)


def _require_plain(member: tarfile.TarInfo, path: Path) -> None:
    if member.islnk():  # a second name of a file that is packed already: packed once more
        member.type, member.linkname, member.size = tarfile.REGTYPE, "", path.stat().st_size
    if member.issym():
        inside = os.path.normpath(PurePosixPath(member.name).parent / member.linkname)
        if member.linkname.startswith("/") or inside.split("/")[0] == "..":
            raise ValueError(f"{path} is a link to {member.linkname}, which is outside of what is packed")
    elif not (member.isreg() or member.isdir()):
        raise ValueError(f"{path} is neither a file nor a directory")


async def unpack_new(runtime: vf.Runtime, packed: str, directory: str, error: type[vf.RolloutError]) -> None:
    """Make `directory` new in the sandbox, whatever stands there, with what was packed in it; a failure is an
    `error`."""
    failure = f"{directory} could not be made new"
    await run_checked(runtime, program_argv("unpack.sh", "new", directory), failure, seconds=_SECONDS, error=error)
    await unpack_into(runtime, packed, directory, error)


async def unpack_into(runtime: vf.Runtime, packed: str, directory: str, error: type[vf.RolloutError]) -> None:
    """Add what was packed to a `directory` of the sandbox; a failure is an `error`."""
    await unpack_archive(runtime, base64.b64decode(packed), directory, error=error)
