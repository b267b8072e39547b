"""The files of a work directory as their sandbox lists them, and what of them is another's or new.

Invariant: what the agent's sandbox says is data of bounded size. No git runs there, whatever stands below a directory
named `.git` is never looked at, and a path that leads out of the directory, or below a link, is refused.
"""

import base64
import binascii
import gzip
import io
import tarfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

MAX_LISTING = 64 << 20
"""Bytes of a listing."""
MAX_CHANGE = 64 << 20
"""Bytes of all files that an agent changed."""
MAX_PATHS = 20_000
MAX_NAMES = 4 << 20
"""Bytes of their names."""
_MAX_PATH = 1024
_MAX_DEPTH = 64
_MAX_FOLDERS = 500


class TreeError(Exception):
    """A sandbox gave no listing, or not the files that it listed; the message says why."""


@dataclass(frozen=True)
class TreeEntry:
    """One file or link."""

    digest: str = ""
    """Of a file's content."""
    target: str | None = None
    """Of a link."""
    executable: bool = False


@dataclass(frozen=True)
class FileContent:
    """A file or link with its content."""

    content: bytes = b""
    target: str | None = None
    executable: bool = False


Tree = Mapping[str, TreeEntry]
"""By path below the directory."""


def read_listing(packed: bytes) -> dict[str, TreeEntry]:
    """The listing that `list_tree.sh` printed; odd lines are left out. A `TreeError` if it cannot be one."""
    try:
        unpacked = zlib.decompressobj(wbits=31)
        text = unpacked.decompress(base64.b64decode(packed), MAX_LISTING)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise TreeError(f"the listing cannot be read: {error}") from error
    if not unpacked.eof:
        raise TreeError(f"there are too many files: a listing of more than {MAX_LISTING >> 20} MiB, or a cut one")
    found: dict[str, TreeEntry] = {}
    executable: set[str] = set()
    for line in text.decode(errors="surrogateescape").split("\n"):
        kind, _, rest = line.partition(" ")
        if kind == "f":
            digest, _, name = rest.partition("  ")
            found |= _named(name, TreeEntry(digest))
        elif kind == "l":
            name, _, target = rest.partition("\t")
            found |= _named(name, TreeEntry(target=target))
        elif kind == "x":
            executable.update(_named(rest, TreeEntry()))
    for name in executable & found.keys():
        found[name] = TreeEntry(found[name].digest, found[name].target, found[name].target is None)
    return found


def _named(name: str, entry: TreeEntry) -> dict[str, TreeEntry]:
    path = name.removeprefix("./")
    parts = path.split("/")
    sound = name.startswith("./") and path.isprintable() and not {"", ".", "..", ".git"} & set(parts)
    sound = sound and len(path) <= _MAX_PATH and len(parts) <= _MAX_DEPTH
    return {path: entry} if sound and "\\" not in path else {}


def changed_paths(before: Tree, after: Tree) -> tuple[list[str], list[str]]:
    """The paths that are new or other, and those that are gone; a `TreeError` if one is below another."""
    other = sorted(path for path, entry in after.items() if before.get(path) != entry)
    gone = sorted(before.keys() - after.keys())
    for path in other:
        if any(parent in after for parent in parents(path)):
            raise TreeError(f"{path!r} is below something that is not a directory")
    return other, gone


def parents(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def unpacked(packed: bytes, tree: Tree, wanted: Collection[str]) -> dict[str, FileContent]:
    """The regular files of an archive, as long as they fit into the bound."""
    found: dict[str, FileContent] = {}
    left = MAX_CHANGE
    try:
        with gzip.open(io.BytesIO(packed)) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                path = member.name.removeprefix("./")
                if path not in wanted or not member.isreg():
                    continue
                left -= member.size
                if left < 0:
                    break
                content = archive.extractfile(member)
                assert content is not None
                found[path] = FileContent(content.read(), executable=tree[path].executable)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError):
        pass  # cut at its bound, or no archive: what is missing is told
    return found


def packed(files: Mapping[str, FileContent]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as archive:
        # Links last: nothing is written through one.
        for path, file in sorted(files.items(), key=lambda item: item[1].target is not None):
            member = tarfile.TarInfo(path)
            if file.target is not None:
                member.type, member.linkname = tarfile.SYMTYPE, file.target
            else:
                member.size, member.mode = len(file.content), 0o755 if file.executable else 0o644
            archive.addfile(member, io.BytesIO(file.content))
    return packed.getvalue()


def packed_below(archive: bytes, name: str) -> bytes:
    """A gzipped tar archive, made anew of the files, directories and links that another holds at `name` and below;
    devices and FIFOs are left out. A `TreeError` if anything stands or leads elsewhere, is below a link or there twice,
    or if it is too large."""
    made, kinds, links, left = io.BytesIO(), dict[str, bytes](), dict[str, str](), MAX_CHANGE
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as given,
            tarfile.open(fileobj=made, mode="w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as kept,
        ):
            for member in given:
                path, left = member.name, left - member.size
                if path in kinds or left < 0 or not _stays(path, name):
                    raise TreeError(f"{path[:_MAX_PATH]!r} is not below {name!r}, too deep or large, or there twice")
                kinds[path] = member.type if not member.islnk() else kinds.get(member.linkname, b"")
                if not kinds[path]:
                    raise TreeError(f"{path!r} is a second name of something that is not there")
                if member.issym():
                    links[path] = member.linkname
                if member.isdir() or kinds[path] in tarfile.REGULAR_TYPES or member.issym():
                    member.pax_headers = {}
                    kept.addfile(member, given.extractfile(member) if member.isreg() else None)
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise TreeError(f"what should be at {name!r} is not an archive: {error}") from error
    for path in kinds:
        if any(parent in links for parent in parents(path)):
            raise TreeError(f"{path!r} is below a link")
    for path, target in links.items():
        _require_inside(path, target, name, links)
    return made.getvalue()


def _stays(path: str, name: str) -> bool:
    parts = path.split("/")
    short = len(path) <= _MAX_PATH and len(parts) <= _MAX_DEPTH
    return short and f"{path}/".startswith(f"{name}/") and not {"", ".", ".."} & {*parts}


def _require_inside(path: str, target: str, name: str, links: Collection[str]) -> None:
    """A `TreeError` if a link leads out of `name`, or over another link."""
    at, steps = path.split("/")[:-1], target.split("/")
    for step in steps[: _MAX_DEPTH + 1]:
        at = at[:-1] if step == ".." else [*at, *({step} - {"", "."})]
        where = "/".join(at)
        if target.startswith("/") or len(steps) > _MAX_DEPTH or not _stays(where, name) or where in links:
            raise TreeError(f"{path!r} is a link to {target[:_MAX_PATH]!r}, which leads elsewhere or is too deep")


def module_folders(paths: Collection[str]) -> list[str] | None:
    """The directories of a change of Python modules alone; None if it changes others, those that build, or too many."""
    names = [PurePosixPath(path) for path in paths]
    if any(name.suffix != ".py" or name.name in {"setup.py", "hatch_build.py", "build.py"} for name in names):
        return None
    folders = sorted({str(name.parent) for name in names})
    return folders if len(folders) <= _MAX_FOLDERS else None


def unfit(before: Collection[str], new: Collection[str], gone: Collection[str]) -> set[str]:
    """The new paths that cannot stand where the other paths of `before` stay: below one of them, or above one."""
    kept = {*before} - {*gone} - {*new}
    above = {parent for path in kept for parent in parents(path)}
    return {path for path in new if path in above or any(parent in kept for parent in parents(path))}


def joined(paths: Iterable[str], end: str = "\0") -> bytes:
    """The paths as a list for one of our programs."""
    return "".join(f"./{path}{end}" for path in paths).encode(errors="surrogateescape")
