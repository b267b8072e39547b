"""What an agent can read in its sandbox before it has done anything: files, git objects, variables.

Invariant: every read is bounded; what was not looked at is told. Of the confined sandbox the parts that this machine
shows read-only hold nothing of a task; of an image the system's own programs are left out.

What is unpacked is bounded in size and depth; content that is damaged says what was read up to there.
"""

import base64
import binascii
import bz2
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import verifiers.v1 as vf
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import run_for
from rollout_sandbox.toolbox.processes import TrustedSystem

from opencode_env.check_tasks.leaks import NAMES

MAX_UNPACKED_BYTES = 4 * 1024 * 1024
"""Of what one file holds, unpacked."""
_SPOKEN = re.compile(rb"[\t\n\r\x20-\x7e]{6,}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]{16,}={0,2}\s*")
_STREAMS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"\x78", zlib.decompressobj),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)


def plain_text(content: bytes) -> str:
    """The content if it is UTF-8 text, else nothing."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text else text


def text_of(content: bytes) -> str:
    """All that is readable in the content, one part a line; empty if nothing is."""
    return "\n".join(_texts(content, depth=3))


def _texts(content: bytes, depth: int) -> Iterator[str]:
    inner, plain = list(_unpacked(content)) if depth else [], plain_text(content)
    for one in inner:
        yield from _texts(one, depth - 1)
    if inner and not plain:
        return
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield content.decode("utf-16", errors="replace")
    elif plain:
        yield plain
    elif spoken := _SPOKEN.findall(content):
        yield "\n".join(part.decode() for part in spoken)


def _unpacked(content: bytes) -> Iterator[bytes]:
    """What is packed in the content, at most `MAX_UNPACKED_BYTES` of it."""
    for magic, make in _STREAMS:
        if content.startswith(magic):
            try:
                data = make().decompress(content, MAX_UNPACKED_BYTES)
            except (zlib.error, OSError, lzma.LZMAError, EOFError):
                continue
            yield data
            return
    try:
        if content.startswith(b"PK"):
            yield from _members(content)
        elif content[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                yield from (file.read() for one in archive if one.isreg() and (file := archive.extractfile(one)))
        elif _BASE64.fullmatch(content):
            yield base64.b64decode(b"".join(content.split()), validate=True)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, binascii.Error, OSError, RuntimeError, ValueError):
        return


def _members(content: bytes) -> Iterator[bytes]:
    left = MAX_UNPACKED_BYTES
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for one in archive.infolist():
            with archive.open(one) as file:
                data = file.read(left)
            left -= len(data)
            yield data
            if left <= 0:
                return


MAX_FILE_BYTES = 512 * 1024
MAX_BYTES = 128 * 1024 * 1024
"""Of all files, and of the objects of one repository."""

_SECONDS = 300.0
_KERNEL = ("/proc", "/sys", "/dev")
_SYSTEM = (
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/include",
    "/usr/libexec",
)
_ADDED = ("/usr/lib/python3/dist-packages",)
"""Below one of those, and yet where a task's own project may be installed."""
_GENERATED = ("__pycache__", ".pytest_cache", ".mypy_cache", "node_modules")
_ARCHIVE, _OBJECTS = "/tmp/.readable.tar", "/tmp/.objects"
_OWNER = "opencode_env.check_tasks"


@dataclass
class Readable:
    """Texts by where they are, and what was not looked at."""

    texts: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


async def readable_in(runtime: vf.Runtime) -> Readable:
    """All that can be read in the sandbox by the user of `runtime`."""
    found = Readable()
    places = ["/"] if isinstance(runtime, TrustedSystem) else ["/", *_ADDED]
    packed = await _packed(runtime, places, await _left_out(runtime), found)
    found.texts |= {name: text for name, text in texts_of(packed, text_of).items() if "/objects/" not in name}
    names = _names(packed)
    found.texts[NAMES] = "\n".join(map(words_of, sorted(names)))
    for directory in [name.removesuffix("/HEAD") for name in sorted(names) if name.endswith("/HEAD")]:
        if directory and f"{directory}/config" in names:
            found.texts |= await _objects(runtime, directory, found)
    listed = (await runtime.run(["env"], {})).stdout.splitlines()
    pairs = (line.partition("=") for line in listed if "=" in line)
    found.texts |= {f"the variable {name}": value for name, _, value in pairs}
    return found


async def work_in(runtime: vf.Runtime, workdir: str) -> dict[str, str]:
    """The texts below the work directory, by path; those of tools' own caches are left out."""
    texts = texts_of(await _packed(runtime, [workdir], [], Readable()))
    return {name: text for name, text in texts.items() if not {".git", *_GENERATED} & set(name.split("/"))}


async def _packed(runtime: vf.Runtime, places: list[str], left_out: list[str], found: Readable) -> bytes:
    pruned = [word for path in left_out for word in ("-path", path, "-prune", "-o")]
    argv = program_argv("pack_files.sh", _ARCHIVE, str(MAX_FILE_BYTES // 1024), *places, *pruned, owner=_OWNER)
    return await _made(runtime, argv, _ARCHIVE, "files: the sandbox lacks tar or find", found)


async def _made(runtime: vf.Runtime, argv: list[str], path: str, lacking: str, found: Readable) -> bytes:
    """The content of the file that a program makes and says the size of."""
    result = await run_for(runtime, argv, _SECONDS, f"{path} cannot be made")
    said, what = result.stdout.strip(), lacking.partition(":")[0]
    if not said.isdigit():
        found.unread.append(lacking if result.exit_code == 90 else f"{what}: {result.stderr[-200:]}")
        return b""
    if int(said) > MAX_BYTES:
        found.unread.append(f"{what}: {int(said) >> 20} MiB are too much")
        return b""
    try:
        return await runtime.read(path, MAX_BYTES)
    finally:
        await runtime.run(["rm", "-f", path], {})


async def _left_out(runtime: vf.Runtime) -> list[str]:
    """What is not the task's: the kernel's, and what this machine shows, or the system's programs of an image."""
    if not isinstance(runtime, TrustedSystem):
        return [*_KERNEL, *_SYSTEM]
    mounts = (await runtime.run(["cat", "/proc/self/mountinfo"], {})).stdout.splitlines()
    fields = [line.split() for line in mounts]
    shown = [words[4] for words in fields if len(words) > 5 and "ro" in words[5].split(",") and words[4] != "/"]
    return sorted({*_KERNEL, *shown})


def texts_of(packed: bytes, read: Callable[[bytes], str] = plain_text) -> dict[str, str]:
    """The texts that `read` finds in the files of a tar archive, by absolute path."""
    if not packed:
        return {}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and (text := read(content.read())):
                found[f"/{member.name.lstrip('./')}" if not member.name.startswith("/") else member.name] = text
    return found


def _names(packed: bytes) -> set[str]:
    if not packed:
        return set()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {"/" + name.lstrip("/") for name in archive.getnames()}


def words_of(path: str) -> str:
    """A path as a sentence: /app/answer_4711.txt says that the answer is 4711."""
    return re.sub(r"(?i)(answer|solution|expected|secret)(?: is)? (?=\S)", r"\1: ", re.sub(r"[/_\s-]+", " ", path))


async def _objects(runtime: vf.Runtime, directory: str, found: Readable) -> Mapping[str, str]:
    """All objects of a repository, those too that no branch leads to."""
    argv = program_argv("dump_objects.sh", directory, _OBJECTS, owner=_OWNER)
    content = await _made(runtime, argv, _OBJECTS, f"git objects of {directory}: the sandbox lacks git", found)
    texts, start = {}, 0
    while (end := content.find(b"\n", start)) > 0:
        name, kind, size = content[start:end].decode().split()
        body = content[end + 1 : end + 1 + int(size)]
        start = end + 1 + int(size) + 1
        if kind != "tree" and int(size) <= MAX_FILE_BYTES and (text := text_of(body)):
            texts[f"git {kind} {name[:10]} of {directory}"] = text
    return texts
