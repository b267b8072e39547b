"""Takes a work directory's listing and files out of a sandbox, and puts a change into another: as bytes, unread.

Invariant: what an agent's files or programs make of that is a `TreeError`, unless the sandbox itself has failed.
"""

import uuid
from collections.abc import Collection
from typing import NoReturn

import verifiers.v1 as vf
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import require_alive, run_for

from opencode_rubrics.swe.file_tree import (
    MAX_CHANGE,
    MAX_PATHS,
    FileContent,
    Tree,
    TreeEntry,
    TreeError,
    joined,
    read_listing,
    unpacked,
)
from opencode_rubrics.swe.programs import argv_of

_SECONDS = 300.0


async def _fail(runtime: vf.Runtime, message: str, cause: Exception | None = None) -> NoReturn:
    await require_alive(runtime, "its work directory was read or changed")
    raise TreeError(message) from cause


async def listing(runtime: vf.Runtime, directory: str) -> bytes:
    """Return what `list_tree.sh` says of a directory; a `TreeError` if it says nothing."""
    listed = await run_for(runtime, argv_of("list_tree", directory), _SECONDS, f"{directory} cannot be listed")
    if listed.exit_code:
        why = {90: "it is not a directory", 91: "the image lacks find, xargs, sha256sum, sed, gzip or base64"}
        said = why.get(listed.exit_code, listed.stderr.strip()[-300:])
        await _fail(runtime, f"{directory} cannot be listed (exit code {listed.exit_code}): {said}")
    return listed.stdout.encode(errors="replace")


async def archive(runtime: vf.Runtime, directory: str, names: bytes) -> bytes:
    """An archive of these files of a directory, each name ended by a line end; a `TreeError` if there is none."""
    if not names:
        return b""
    place = f"/tmp/.{uuid.uuid4().hex}"
    try:
        await runtime.write(f"{place}.list", names)
    except vf.SandboxError as error:
        await _fail(runtime, f"what was changed cannot be taken out: {error}", error)
    argv = argv_of("take_files", directory, f"{place}.list", f"{place}.tgz", str(MAX_CHANGE + (MAX_PATHS << 11)))
    packed = await run_for(runtime, argv, _SECONDS, "files cannot be taken out")
    found = await read_bounded(runtime, f"{place}.tgz", MAX_CHANGE)
    if packed.exit_code or isinstance(found, FileState):
        why = found.name.lower() if isinstance(found, FileState) else packed.stderr.strip()[-300:]
        await _fail(runtime, f"what was changed cannot be taken out: {why} (exit code {packed.exit_code})")
    assert isinstance(found, bytes)
    return found


async def put(box: vf.Runtime, directory: str, removed: bytes, folders: tuple[bytes, bytes], packed: bytes) -> None:
    """Make a directory of an untouched sandbox hold a change, whatever stands where it goes: remove the paths
    `removed`, make writable and then make the directories of `folders`, all ended by NULs, and unpack the files of a
    gzipped tar archive. A `TreeError` if it cannot be put there."""
    if not removed:
        return
    place = f"/tmp/.{uuid.uuid4().hex}"
    for name, content in {"removed": removed, "writable": folders[0], "folders": folders[1], "tgz": packed}.items():
        await box.write(f"{place}.{name}", content)
    done = await run_for(box, argv_of("put_files", directory, place), _SECONDS, "the change cannot be put there")
    if done.exit_code:
        await _fail(box, f"it cannot be put there ({done.exit_code}): {(done.stderr or done.stdout).strip()[-300:]}")


async def ignored_paths(box: vf.Runtime, directory: str, names: bytes) -> bytes:
    """Those of the paths that the repository in an untouched sandbox ignores, each ended by a NUL."""
    place = f"/tmp/.{uuid.uuid4().hex}.list"
    await box.write(place, names)
    found = await run_for(box, argv_of("ignored_paths", directory, place), _SECONDS, "ignored files cannot be told")
    return found.stdout.encode(errors="surrogateescape")


async def list_tree(runtime: vf.Runtime, directory: str) -> dict[str, TreeEntry]:
    """Return what is below a directory of a sandbox without an agent; a `TreeError` if the sandbox did not say."""
    return read_listing(await listing(runtime, directory))


async def take_files(runtime: vf.Runtime, directory: str, tree: Tree, paths: Collection[str]) -> dict[str, FileContent]:
    """The content of these paths of a sandbox without an agent; a `TreeError` if they are too large."""
    links = {path: FileContent(target=tree[path].target) for path in paths if tree[path].target is not None}
    wanted = [path for path in paths if path not in links]
    return {**links, **unpacked(await archive(runtime, directory, joined(wanted, "\n")), tree, wanted)}
