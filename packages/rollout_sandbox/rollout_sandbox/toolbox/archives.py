"""Archives on their way into a sandbox: as arguments of the command that unpacks them where they are small.

A directory of the host is packed as one that travels with a task's data. Equal directories give equal
archives (no times, no owners, names in order), and no such archive holds anything but files, directories and links that
stay inside it.
"""

import base64
import gzip
import io
import os
import tarfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import verifiers.v1 as vf

from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked

_MAX_INLINE_BYTES = 96 * 1024
"""Largest archive, in base64, that travels as arguments instead of a file: saves a request per archive."""
_PIECE = 32 * 1024
_SECONDS = 300.0
_MAX_BYTES = 64 << 20
"""The most that the files of a packed directory may hold together."""
_IGNORED = {".DS_Store", ".git", "__pycache__"}


def archive_arguments(archive: bytes) -> list[str]:
    """The archive in base64, in pieces that fit on a command line; empty when it is too large for one."""
    packed = base64.b64encode(archive).decode()
    if len(packed) > _MAX_INLINE_BYTES:
        return []
    return [packed[start : start + _PIECE] for start in range(0, len(packed), _PIECE)]


async def unpack_archive(
    runtime: vf.Runtime,
    archive: bytes,
    directory: str,
    folders: Sequence[str] = (),
    *,
    failure: str = "",
    error: type[vf.RolloutError] = vf.SandboxError,
) -> None:
    """Add what is in a gzipped tar archive to the absolute path `directory`, which is made where there is none.

    Args:
        folders: directories of the archive, each below its parent, at which no link may stand: one is removed.
        failure: what has failed when this fails, to open the message.
        error: what a failure is in a sandbox that is still alive.

    Raises:
        RolloutError: `error`: the disk is full, `directory` cannot be written, or something stands in the way.
    """
    failure = failure or f"{directory} could not be filled"
    content = archive_arguments(archive)
    if not content:
        path = f"{directory.rstrip('/')}/.{uuid.uuid4().hex}.tar.gz"
        try:
            await runtime.write(path, archive)
        except vf.SandboxError as problem:
            await require_alive(runtime, f"filling {directory}")
            raise error(f"{failure}: {problem}") from problem
        content = [f"@{path}"]
    argv = program_argv("unpack.sh", "into", directory, str(len(folders)), *folders, *content)
    await run_checked(runtime, argv, failure, seconds=_SECONDS, error=error)


def pack_directory(directory: Path) -> str:
    """The directory as base64 of a gzipped tar archive; a `ValueError` if it holds more than `_MAX_BYTES`, a special
    file, or a link that leads out of it."""
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
            if total > _MAX_BYTES:
                raise ValueError(f"{directory} holds more than {_MAX_BYTES >> 20} MiB, which is too much for a task")
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
