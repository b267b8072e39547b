"""What the agent's directories hold, kept in a folder of the host and put into another sandbox.

Two programs inside do all that has to do with paths (`list_and_send.py`, `put_files.py`). The host opens names that it
has made itself, and takes no more than it was told; a content that has not changed since an earlier keeping is a hard
link to that one's, never to a file of a sandbox.
"""

import asyncio
import contextlib
import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from verifiers.v1.errors import SandboxError

from rollout_sandbox.errors import ChildrenRun, NotKept
from rollout_sandbox.interface import KeptFiles
from rollout_sandbox.surrogates import whole_text

INDEX = "index.gz"
"""The name in such a folder of what it holds, a JSON list a line: path, kind, mode, time, size or target, stamp, and
for a file the name of its content. It is compressed: it is new for every keeping, and a repository has many files."""
MAX_LISTED_BYTES = 64 << 20
FILE_BYTES = 16 << 10
"""What a file counts at least against a limit of bytes, an empty one too: file systems have an inode for so many."""
PACKED = ".z"
"""How the name of a compressed content ends."""
_PACKED_BYTES = 16 << 20
"""A content that has changed since the keeping before is compressed up to this size: it may change before every one, as
the log of a database does. What is new or larger is not: later keepings share it."""
_BATCH_BYTES = 4 << 20
_CONTENT = re.compile(r"[0-9]+(\.z)?")
_EARLY = "the program that keeps a sandbox's files has ended early"
_MOST_REASON = 300
"""Characters of a reason that names what the agent has named."""


class StreamedProcess(Protocol):
    """A process that can be told that no more comes."""

    stdout: Any
    stderr: Any

    async def write(self, data: bytes) -> None: ...

    def close_stdin(self) -> None: ...

    async def wait(self) -> int: ...

    async def kill(self) -> None: ...


class _Stream:
    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._held = bytearray()

    async def _more(self) -> None:
        try:
            self._held += await anext(self._source)
        except StopAsyncIteration:
            raise SandboxError(_EARLY) from None

    async def line(self, most: int) -> bytes:
        start = 0
        while (end := self._held.find(b"\n", start)) < 0:
            start = len(self._held)
            if start > most:
                raise NotKept(f"the list of the sandbox's files is over {MAX_LISTED_BYTES} bytes")
            await self._more()
        found = bytes(self._held[:end])
        del self._held[: end + 1]
        return found

    async def parts(self, size: int) -> AsyncIterator[bytes]:
        while size > 0:
            if not self._held:
                await self._more()
            part = bytes(self._held[:size])
            del self._held[: len(part)]
            size -= len(part)
            yield part


class _Writer:
    """Writes contents beside the event loop, many small ones at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[tuple[str, bytes]] = []
        self._bytes = 0

    async def add(self, name: str, part: bytes) -> None:
        self._waiting.append((name, part))
        self._bytes += len(part)
        if self._bytes >= _BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        await asyncio.to_thread(self._write, waiting)

    def _write(self, waiting: Sequence[tuple[str, bytes]]) -> None:
        for name, part in waiting:
            with (self._folder / name).open("ab") as file:
                if name.endswith(PACKED):
                    file.write(zlib.compress(part, 1))
                elif part == bytes(len(part)):  # what is a hole inside takes no disk here
                    file.truncate(file.tell() + len(part))
                else:
                    file.write(part)


async def keep(
    process: StreamedProcess, folder: Path, before: Path | None, most: int, changed: Mapping[str, bool] | None = None
) -> KeptFiles:
    """Keep what `list_and_send.py`, just started, lists in an empty folder.

    Args:
        before: an earlier folder of the same sandbox.
        most: bytes that all contents may have, a file's at least `FILE_BYTES`.
        changed: paths that differ from the sandbox's image, and whether the image's were taken away.

    Raises:
        NotKept: the sandbox holds more than that, or something that cannot be kept, such as a process.
        ChildrenRun: such processes are all children of the agent's program.
    """
    stream = _Stream(process.stdout)
    await _tell(process, changed)
    _refuse_processes(json.loads(await stream.line(4 << 20)))
    entries, kept = await _entries(stream), KeptFiles()
    kept.bytes, wanted, links = await asyncio.to_thread(_planned, entries, before, most)
    await _tell(process, wanted)
    writer = _Writer(folder)
    for number in wanted:
        size, name = entries[number][4], entries[number][6]
        if name.endswith(PACKED):
            await writer.add(name, b"".join([part async for part in stream.parts(size)]))
        else:
            await writer.add(name, b"")
            async for part in stream.parts(size):
                await writer.add(name, part)
        kept.new_bytes += size
    await writer.flush()
    await asyncio.to_thread(_finish, folder, before, links, entries)
    return kept


def _planned(entries: list[list[Any]], before: Path | None, most: int) -> tuple[int, list[int], list[tuple[str, str]]]:
    """Bytes of all contents, numbers of those that are wanted, and what the others are links to; names each content."""
    sizes = [one[4] for one in entries if one[1] == "f"]
    if (counted := sum(max(size, FILE_BYTES) for size in sizes)) > most:
        raise NotKept(f"the sandbox's {len(sizes)} files count {counted} bytes, more than {most}")
    files_before = [] if before is None else [one for one in entries_of(before) if one[1] == "f"]
    known = {one[0]: (one[4], one[5], one[6]) for one in files_before}
    wanted: list[int] = []
    links: list[tuple[str, str]] = []
    for number, one in enumerate(entries):
        if one[1] == "f":
            size, stamp, name = known.get(one[0], (None, None, ""))
            same = bool(stamp) and (size, stamp) == (one[4], one[5])
            packed = name.endswith(PACKED) if same else bool(name) and one[4] <= _PACKED_BYTES
            one.append(f"{number}{PACKED if packed else ''}")
            links.append((name, one[6])) if same else wanted.append(number)
    return sum(sizes), wanted, links


async def _tell(process: StreamedProcess, said: object) -> None:
    try:
        await process.write(json.dumps(said).encode() + b"\n")
    except BrokenPipeError:
        raise SandboxError(_EARLY) from None


async def put(process: StreamedProcess, folder: Path) -> None:
    """Let `put_files.py`, just started, make what a folder holds."""
    try:
        parts = _sent(folder)
        while batch := await asyncio.to_thread(_batch, parts):
            await process.write(batch)
    except BrokenPipeError:
        pass  # it says why
    except OSError as error:
        await process.kill()
        raise SandboxError(f"kept files in {folder} cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, EOFError, zlib.error) as error:
        raise SandboxError(f"kept files in {folder}: {INDEX} is not whole") from error
    process.close_stdin()
    said = b"".join([part async for part in process.stdout])
    if await process.wait() != 0 or said != b"made\n":
        why = b"".join([part async for part in process.stderr]).decode(errors="replace").strip()
        raise SandboxError(f"kept files could not be put into the sandbox: {why[-500:]}")


def require_whole(folder: Path) -> None:
    """Refuse, by a `ValueError`, a folder of kept files that is damaged or was changed (blocking)."""
    try:
        for path, kind, _, _, size, _, *name in entries_of(folder):
            if kind == "f" and _length(folder, *name) != size:
                raise ValueError(f"the content of {_printable(path)}")
    except (OSError, ValueError, LookupError, TypeError, EOFError, zlib.error) as error:
        raise ValueError(f"kept files are not whole: {error}") from None


def _length(folder: Path, name: str) -> int:
    if name.endswith(PACKED):
        return sum(map(len, content(folder, name)))
    with _opened(folder, name) as file:
        return os.fstat(file.fileno()).st_size


def entries_of(folder: Path) -> Iterator[list[Any]]:
    """Yield what a folder of kept files holds, by its index."""
    with gzip.open(folder / INDEX) as lines:
        for line in lines:
            yield json.loads(line)


async def _entries(stream: _Stream) -> list[list[Any]]:
    entries: list[list[Any]] = []
    left = MAX_LISTED_BYTES
    while (line := await stream.line(left)) != b"null":
        left -= len(line)
        one = json.loads(line)
        if one[1] == "e":
            raise NotKept(_printable(f"{one[0]} {one[4]}"))
        if one[1] == "f" and not (isinstance(one[4], int) and one[4] >= 0):
            raise SandboxError("what lists a sandbox's files was not left alone")
        entries.append(one)
    return entries


def _refuse_processes(running: list[list[Any]]) -> None:
    """Refuse what runs beside the agent's program and the shell that started it, which are the first two; the shell's
    parent is process 1, or outside of a container."""
    ordered = sorted(running)
    own = len(ordered) >= 2 and ordered[0][1] in (0, 1) and ordered[1][1] == ordered[0][0]
    if beside := ordered[2:] if own else ordered:
        names = ", ".join(sorted({name for _, _, name in beside})[:5])
        children = own and all(parent == ordered[1][0] for _, parent, _ in beside)
        raise (ChildrenRun if children else NotKept)(_printable(f"processes ran beside the agent's program: {names}"))


def _printable(reason: str) -> str:
    """A reason as a terminal may show it: what the agent has named can hold anything, at any length."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in whole_text(reason))
    return shown if len(shown) <= _MOST_REASON else f"{shown[:100]}…{shown[101 - _MOST_REASON :]}"


def _finish(folder: Path, before: Path | None, links: Sequence[tuple[str, str]], entries: Sequence[list[Any]]) -> None:
    for old, new in links:
        assert before is not None
        os.link(before / old, folder / new, follow_symlinks=False)
    with gzip.open(folder / INDEX, "xb", compresslevel=1) as file:
        file.writelines(json.dumps(one).encode() + b"\n" for one in entries)


def _sent(folder: Path) -> Iterator[bytes]:
    entries = list(entries_of(folder))
    yield b"".join(json.dumps(one[:6]).encode() + b"\n" for one in entries) + b"null\n"
    for one in entries:
        if one[1] == "f":
            yield from content(folder, one[6])


def _batch(parts: Iterator[bytes]) -> bytes:
    batch = bytearray()
    while len(batch) < _BATCH_BYTES and (part := next(parts, None)) is not None:
        batch += part
    return bytes(batch)


def content(folder: Path, name: str) -> Iterator[bytes]:
    """The parts of a content, by its name in the index; a `ValueError` if none has such a name, or it is not a file."""
    with _opened(folder, name) as file:
        if name.endswith(PACKED):
            yield zlib.decompress(file.read())
            return
        while part := file.read(1 << 20):
            yield part


@contextlib.contextmanager
def _opened(folder: Path, name: str) -> Iterator[BinaryIO]:
    if not _CONTENT.fullmatch(name):
        raise ValueError(f"no content has the name {name!r}")
    with open(os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{name} is not a file")
        yield file
