"""Files of a sandbox of any kind, for tasks, rubrics and harnesses, under the names that verifiers' sandboxes had.

What is read of an agent's sandbox is a regular file of bounded size, never a link, and nothing that blocks;
what a bundle writes lies below its directory, whatever links stand there.
"""

import asyncio
import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import verifiers.v1 as vf

from rollout_sandbox.errors import SandboxFileError
from rollout_sandbox.toolbox.archives import unpack_archive
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked

Content = str | bytes | Path
"""What a file holds: text, which is written as UTF-8; bytes; or a file of this machine, whose executable bit it
keeps."""


async def upload_file(runtime: vf.Runtime, path: str, local_path: str | Path) -> None:
    """Copy one regular file of this machine to the absolute `path` in the sandbox, with its executable bit; its
    directory is made.

    Raises:
        SandboxError: it cannot be written, or the sandbox is gone.
        OSError: it cannot be read here.
        ValueError: `path` is relative.
    """
    _require_absolute(path)
    source = Path(local_path)
    await runtime.write(path, await asyncio.to_thread(source.read_bytes))
    if source.stat().st_mode & 0o111:
        await run_checked(runtime, ["chmod", "755", "--", path], f"{path!r} could not be made executable")


async def upload_content(runtime: vf.Runtime, content: str | bytes, path: str) -> None:
    """Write one file at the absolute `path` in the sandbox, text as UTF-8; its directory is made.

    Raises:
        SandboxError: it cannot be written, or the sandbox is gone.
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
        runtime: the sandbox; the files belong to its user.
        file_map: content by path, relative to `dest_dir`; any name that a file system takes.
        dest_dir: absolute; it is made, and followed where it is a link itself.
        failure: what has failed when this fails, to open the message.
        error: what a failure is in a sandbox that is still alive.

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
    """The content of a regular file that an agent may have made.

    Args:
        path: absolute, in the sandbox; `in_workdir(trace, path)` makes one of a relative path.
        max_bytes: the most that it may hold.

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
