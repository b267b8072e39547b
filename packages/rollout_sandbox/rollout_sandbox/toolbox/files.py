"""Files of a sandbox of any kind, for tasks, rubrics and harnesses, under the names that verifiers' sandboxes had.

What is read of an agent's sandbox is a regular file of bounded size; what a bundle writes lies below its directory,
whatever links stand there. Equal directories of this machine are packed as equal archives.
"""

import asyncio
import base64
import gzip
import io
import os
import tarfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import verifiers.v1 as vf

from rollout_sandbox.errors import SandboxFileError
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
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
        failure: what has failed when this fails, to open the message; it is an `error` in a sandbox that is alive.

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
            if member.islnk():  # a second name of a file that is packed already: packed once more
                member.type, member.linkname, member.size = tarfile.REGTYPE, "", path.stat().st_size
            if member.issym():
                inside = os.path.normpath(PurePosixPath(member.name).parent / member.linkname)
                if member.linkname.startswith("/") or inside.split("/")[0] == "..":
                    raise ValueError(f"{path} is a link to {member.linkname}, which is outside of what is packed")
            elif not (member.isreg() or member.isdir()):
                raise ValueError(f"{path} is neither a file nor a directory")
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


async def unpack_new(runtime: vf.Runtime, packed: str, directory: str, error: type[vf.RolloutError]) -> None:
    """Make `directory` new, whatever stands there, with what was packed in it; a failure is an `error`."""
    failure = f"{directory} could not be made new"
    await run_checked(runtime, program_argv("unpack.sh", "new", directory), failure, seconds=_SECONDS, error=error)
    await unpack_archive(runtime, base64.b64decode(packed), directory, error=error)


Content = str | bytes | Path
"""What a file holds: text, which is written as UTF-8; bytes; or a file of this machine, whose executable bit it
keeps."""


async def upload_file(runtime: vf.Runtime, path: str, local_path: str | Path) -> None:
    """Copy one regular file of this machine to the absolute `path` in the sandbox, with its executable bit.

    Raises:
        OSError: it cannot be read here.
        ValueError: `path` is relative.
    """
    _require_absolute(path)
    source = Path(local_path)
    await runtime.write(path, await asyncio.to_thread(source.read_bytes))
    if source.stat().st_mode & 0o111:
        await run_checked(runtime, ["chmod", "755", "--", path], f"{path!r} could not be made executable")


async def upload_content(runtime: vf.Runtime, content: str | bytes, path: str) -> None:
    """Write one file at the absolute `path` in the sandbox, text as UTF-8.

    Raises:
        ValueError: `path` is relative.
    """
    _require_absolute(path)
    await runtime.write(path, content.encode() if isinstance(content, str) else content)


async def upload_bundle(
    runtime: vf.Runtime,
    file_map: Mapping[str, Content],
    dest_dir: str,
    *,
    failure: str = "",
    error: type[vf.RolloutError] = vf.SandboxError,
) -> None:
    """Write many files at once: with one command, or, beyond 72 KiB packed, with one upload and one command.

    A file that is there is replaced, and so is a link, also one in the place of a directory below `dest_dir`. The
    sandbox needs `tar`, `gzip` and `base64`.

    Args:
        file_map: content by path, relative to `dest_dir`; any name that a file system takes.
        dest_dir: absolute; it is made, and followed where it is a link itself.
        failure: what has failed when this fails, to open the message; it is an `error` in a sandbox that is alive.

    Raises:
        RolloutError: `error`: the disk is full, or something that is neither a file nor a link stands in the way.
        OSError: a file cannot be read here.
        ValueError: a path leads out of `dest_dir`, or is both a file and a directory.
    """
    _require_absolute(dest_dir)
    if not file_map:
        return
    folders = _folders(file_map)
    archive = await asyncio.to_thread(_packed, file_map)
    await unpack_archive(runtime, archive, dest_dir, folders, failure=failure, error=error)


async def read_file(runtime: vf.Runtime, path: str, max_bytes: int = 1 << 20) -> bytes:
    """The content of a regular file that an agent may have made, of at most `max_bytes`, at an absolute `path`;
    `in_workdir(trace, path)` makes one of a relative one.

    Raises:
        SandboxFileError: there is none, it is a link or no regular file, it cannot be read, or it is larger; its
            `state` says which.
        ValueError: `path` is relative.
    """
    _require_absolute(path)
    found = await read_bounded(runtime, path, max_bytes)
    if isinstance(found, FileState):
        await require_alive(runtime, f"reading {path!r}")
        more = f" (over {max_bytes} bytes)" if found is FileState.OVERSIZED else ""
        raise SandboxFileError(f"read {path!r}: {found.name.lower().replace('_', ' ')}{more}", found)
    return found


def _require_absolute(path: str) -> None:
    advice = "name files of a sandbox from its root, as with in_workdir(trace, path)"
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is relative: {advice}")


def _folders(names: Mapping[str, Content]) -> Sequence[str]:
    """The directories that the files are in, each behind its parent."""
    folders: dict[str, None] = {}
    for name in names:
        parts = name.split("/")
        if "\0" in name or {"", ".", ".."} & set(parts):
            raise ValueError(f"{name!r} is not a path below the directory of a bundle")
        folders |= dict.fromkeys("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if both := sorted(folders.keys() & names.keys()):
        raise ValueError(f"{both[0]!r} is a file and a directory of one bundle")
    return list(folders)


def _packed(file_map: Mapping[str, Content]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive,
    ):
        for name, content in file_map.items():
            executable = isinstance(content, Path) and content.stat().st_mode & 0o111
            data = content.read_bytes() if isinstance(content, Path) else content
            data = data.encode() if isinstance(data, str) else data
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755 if executable else 0o644
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()
