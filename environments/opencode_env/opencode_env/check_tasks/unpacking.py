"""What can be read in a file's bytes: its text, that of what is compressed or archived in it, and words between others.

Invariant: what is unpacked is bounded in size and depth; content that is damaged says what was read up to there.
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
from collections.abc import Callable, Iterator
from typing import Any

MAX_BYTES = 4 * 1024 * 1024
"""Of what one file holds, unpacked."""
_DEPTH = 3
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
    return content.decode() if _is_text(content) else ""


def text_of(content: bytes) -> str:
    """All that is readable in the content, one part a line; empty if nothing is."""
    return "\n".join(_texts(content, _DEPTH))


def _texts(content: bytes, depth: int) -> Iterator[str]:
    inner = list(_unpacked(content)) if depth else []
    for one in inner:
        yield from _texts(one, depth - 1)
    if inner and not _is_text(content):
        return
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield content.decode("utf-16", errors="replace")
    elif _is_text(content):
        yield content.decode()
    elif spoken := _SPOKEN.findall(content):
        yield "\n".join(part.decode() for part in spoken)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _unpacked(content: bytes) -> Iterator[bytes]:
    """What is packed in the content, at most `MAX_BYTES` of it."""
    for magic, make in _STREAMS:
        if content.startswith(magic):
            try:
                data = make().decompress(content, MAX_BYTES)
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
    left = MAX_BYTES
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for one in archive.infolist():
            with archive.open(one) as file:
                data = file.read(left)
            left -= len(data)
            yield data
            if left <= 0:
                return
