"""The files of a work directory as their sandbox lists them, and what of them is another's or new.

Invariant: what the agent's sandbox says is data of bounded size. No program or configuration of a repository in it has
a part in this: no git runs there, and whatever stands below a directory named `.git` is never looked at. A path that
leads out of the directory, or below a link, is refused.
"""

import base64
import binascii
import gzip
import io
import tarfile
import uuid
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import verifiers.v1 as vf
from agent_sandbox.toolbox.archives import unpack_archive
from agent_sandbox.toolbox.bounded_file import FileState, read_bounded
from agent_sandbox.toolbox.checked_run import require_alive, run_checked, run_for
from agent_sandbox.toolbox.scoring import ScoringError

from opencode_rubrics.swe.programs import argv_of

MAX_LISTING = 64 << 20
"""Bytes of a listing."""
MAX_CHANGE = 64 << 20
"""Bytes of all files that an agent changed."""
MAX_PATHS = 20_000

_SECONDS = 300.0


class TreeError(Exception):
    """A sandbox gave no listing, or not the files that it listed; the message says why."""


@dataclass(frozen=True)
class Entry:
    """One file or link."""

    digest: str = ""
    """Of a file's content."""
    target: str | None = None
    """Of a link."""
    executable: bool = False


@dataclass(frozen=True)
class File:
    """A file or link with its content."""

    content: bytes = b""
    target: str | None = None
    executable: bool = False


Tree = Mapping[str, Entry]
"""By path below the directory."""


def read_listing(packed: str) -> dict[str, Entry]:
    """The listing that `list_tree.sh` printed; lines that make no sense are left out. A `TreeError` if it is not a
    tree, or too large."""
    try:
        unpacked = zlib.decompressobj(wbits=31)
        text = unpacked.decompress(base64.b64decode(packed), MAX_LISTING)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise TreeError(f"the listing cannot be read: {error}") from error
    if not unpacked.eof:
        raise TreeError(f"there are too many files: a listing of more than {MAX_LISTING >> 20} MiB, or a cut one")
    found: dict[str, Entry] = {}
    executable: set[str] = set()
    for line in text.decode(errors="surrogateescape").split("\n"):
        kind, _, rest = line.partition(" ")
        if kind == "f":
            digest, _, name = rest.partition("  ")
            found |= _named(name, Entry(digest))
        elif kind == "l":
            name, _, target = rest.partition("\t")
            found |= _named(name, Entry(target=target))
        elif kind == "x":
            executable.update(_named(rest, Entry()))
    for name in executable & found.keys():
        found[name] = Entry(found[name].digest, found[name].target, found[name].target is None)
    return found


def _named(name: str, entry: Entry) -> dict[str, Entry]:
    path = name.removeprefix("./")
    parts = path.split("/")
    sound = name.startswith("./") and path.isprintable() and not {"", ".", "..", ".git"} & set(parts)
    return {path: entry} if sound and "\\" not in path else {}


async def list_tree(runtime: vf.Runtime, directory: str) -> dict[str, Entry]:
    """What is below a directory of a sandbox; a `TreeError` if the sandbox did not say."""
    listed = await run_for(runtime, argv_of("list_tree", directory), _SECONDS, f"{directory} cannot be listed")
    if listed.exit_code:
        await require_alive(runtime, f"listing {directory}")
        why = {90: "it is not a directory", 91: "the image lacks find, xargs, sha256sum, sed, gzip or base64"}
        said = why.get(listed.exit_code, listed.stderr.strip()[-300:])
        raise TreeError(f"{directory} cannot be listed (exit code {listed.exit_code}): {said}")
    return read_listing(listed.stdout)


def changed_paths(before: Tree, after: Tree) -> tuple[list[str], list[str]]:
    """The paths that are new or other, and those that are gone; a `TreeError` if one is below another."""
    other = sorted(path for path, entry in after.items() if before.get(path) != entry)
    gone = sorted(before.keys() - after.keys())
    for path in other:
        if any(parent in after for parent in parents(path)):
            raise TreeError(f"{path!r} is below something that is not a directory")
    return other, gone


def parents(path: str) -> Iterable[str]:
    """The directories above a path."""
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


async def take_files(runtime: vf.Runtime, directory: str, tree: Tree, paths: Collection[str]) -> dict[str, File]:
    """The content of these paths of a listing; a `TreeError` if they are too many or too large, or the sandbox did not
    give them as it listed them."""
    if len(paths) > MAX_PATHS:
        raise TreeError(f"{len(paths)} files are more than {MAX_PATHS}")
    links = {path: File(target=tree[path].target) for path in paths if tree[path].target is not None}
    wanted = [path for path in paths if path not in links]
    if not wanted:
        return links
    name = f"/tmp/.{uuid.uuid4().hex}"
    listed = "".join(f"./{path}\n" for path in wanted)
    try:
        await runtime.write(f"{name}.list", listed.encode(errors="surrogateescape"))
    except vf.SandboxError as error:
        await require_alive(runtime, "taking out what was changed")
        raise TreeError(f"what was changed cannot be taken out: {error}") from error
    argv = argv_of("take_files", directory, f"{name}.list", f"{name}.tgz", str(MAX_CHANGE + (MAX_PATHS << 11)))
    packed = await run_for(runtime, argv, _SECONDS, "files cannot be taken out")
    found = await read_bounded(runtime, f"{name}.tgz", MAX_CHANGE)
    if packed.exit_code or isinstance(found, FileState):
        await require_alive(runtime, "taking out what was changed")
        why = found.name.lower() if isinstance(found, FileState) else packed.stderr.strip()[-300:]
        raise TreeError(f"what was changed cannot be taken out: {why} (exit code {packed.exit_code})")
    files = _unpacked(found, tree, set(wanted))
    if missing := sorted(set(wanted) - files.keys()):
        raise TreeError(f"{len(missing)} files were listed and not given, or are too large: {missing[0]!r}, …")
    return {**links, **files}


def _unpacked(packed: bytes, tree: Tree, wanted: Collection[str]) -> dict[str, File]:
    """The regular files of an archive, as long as they fit into the bound."""
    found: dict[str, File] = {}
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
                found[path] = File(content.read(), executable=tree[path].executable)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError):
        pass  # cut at its bound, or no archive: what is missing is told
    return found


async def put_files(runtime: vf.Runtime, directory: str, files: Mapping[str, File], gone: Collection[str]) -> None:
    """Make a directory of an untouched sandbox hold these files, and not those that are gone; a `ScoringError` if it
    could not take them."""
    failure = "what the agent changed could not be put into the untouched sandbox"
    removed = [*gone, *files]
    if not removed:
        return
    name = f"/tmp/.{uuid.uuid4().hex}.list"
    await runtime.write(name, b"".join(f"./{path}\0".encode(errors="surrogateescape") for path in removed))
    argv = argv_of("remove_files", directory, name)
    await run_checked(runtime, argv, failure, seconds=_SECONDS, error=ScoringError)
    if files:
        folders = dict.fromkeys(parent for path in files for parent in parents(path))
        # More would not fit on a command line; links of the untouched tree in their way fail, and are told.
        shown = list(folders) if sum(map(len, folders)) < 60_000 else []
        await unpack_archive(runtime, _packed(files), directory, shown, failure=failure, error=ScoringError)


def _packed(files: Mapping[str, File]) -> bytes:
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


async def ignored_paths(box: vf.Runtime, directory: str, paths: Collection[str]) -> set[str]:
    """Those of the paths that the repository in an untouched sandbox ignores; none where it has none."""
    name = f"/tmp/.{uuid.uuid4().hex}.list"
    await box.write(name, b"".join(f"{path}\0".encode(errors="surrogateescape") for path in paths))
    found = await run_for(box, argv_of("ignored_paths", directory, name), _SECONDS, "ignored files cannot be told")
    return set(found.stdout.split("\0")) & set(paths)
