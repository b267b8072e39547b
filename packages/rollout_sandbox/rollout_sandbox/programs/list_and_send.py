"""Lists what directories of a sandbox hold and sends the contents that are asked for: list_and_send.py ROOTS SKIPPED.

Both are JSON lists of paths. The first line of its standard input names what differs from an image, a JSON object of
paths, each with whether the image's was taken away; `null` where there is none. On its standard output stand the
sandbox's processes, the entries, one JSON list a line, each directory before what it holds, and a last line; the second
line of its input are the numbers of the files that are wanted; then their contents follow, as long as their entries
say. It follows no link and opens regular files only, and lists no more than it is bound to. Started with everything
else in the sandbox held still.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

MOST_ENTRIES = 300_000
MOST_HOLES = 1 << 30
"""Bytes that files may have beyond what they take of a disk: what they have no content for is sent as zeros, while
everything is held still."""
_FRESH_NS = 50_000_000
"""A file that changed just now may change again within the same tick of its time stamps."""


class FileListing:
    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self.linked: dict[tuple[int, int], str] = {}
        """The first path of each file that has several."""
        self.holes = 0

    @property
    def excess(self) -> str | None:
        if len(self.entries) > MOST_ENTRIES:
            return f"holds more than {MOST_ENTRIES} files"
        return f"has files with more than {MOST_HOLES} bytes of holes" if self.holes > MOST_HOLES else None


def processes() -> Iterator[tuple[int, int, str]]:
    """Every process but the first and this one: number, parent, name."""
    try:
        own = os.readlink("/proc/self")
    except OSError:  # it runs outside, where nothing inside sees it
        own = ""
    for name in os.listdir("/proc"):
        if not name.isdigit() or name in ("1", own):
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                head, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        state, parent, *_ = fields = rest.split()
        if state not in "ZX" or (state == "Z" and int(fields[17]) > 1):  # only its first thread has ended
            yield int(name), int(parent), head.partition("(")[2]


def entry(path: str, found: os.stat_result, listed: FileListing) -> list[Any]:
    """One entry: path, kind, mode, time of its last change (ns), size or target, and what tells that it changed."""
    mode, modified = stat.S_IMODE(found.st_mode), found.st_mtime_ns
    if stat.S_ISLNK(found.st_mode):
        return [path, "l", mode, modified, os.readlink(path), ""]
    if stat.S_ISDIR(found.st_mode):
        return [path, "d", mode, modified, 0, ""]
    if stat.S_ISFIFO(found.st_mode):
        return [path, "p", mode, modified, 0, ""]
    if not stat.S_ISREG(found.st_mode):
        return [path, "e", mode, modified, "is not a file, directory, link or pipe", ""]
    if found.st_nlink > 1:
        first = listed.linked.setdefault((found.st_dev, found.st_ino), path)
        if first != path:
            return [path, "h", mode, modified, first, ""]
    if not os.access(path, os.R_OK):
        return [path, "e", mode, modified, "cannot be read", ""]
    listed.holes += max(0, found.st_size - found.st_blocks * 512)
    fresh = found.st_ctime_ns > time.time_ns() - _FRESH_NS
    stamp = "" if fresh else f"{found.st_dev}.{found.st_ino}.{found.st_ctime_ns}"
    return [path, "f", mode, modified, found.st_size, stamp]


def walk(path: str, device: int, skipped: Collection[str], listed: FileListing) -> None:
    """List a directory, itself included; what another file system holds is not the sandbox's own."""
    waiting = [path]
    while waiting and listed.excess is None:
        path = waiting.pop()
        try:
            found = os.lstat(path)
            if path in skipped or found.st_dev != device:
                continue
            made = entry(path, found, listed)
            if made[1] == "d":
                waiting += sorted((os.path.join(path, name) for name in os.listdir(path)), reverse=True)
        except OSError as error:
            made = [path, "e", 0, 0, error.strerror or "cannot be read", ""]
        listed.entries.append(made)


def list_changed(paths: Mapping[str, bool], listed: FileListing) -> None:
    """List what differs from an image, with owners."""
    for path, gone in paths.items():
        if gone:
            listed.entries.append([path, "x", 0, 0, 0, ""])
        try:
            found = os.lstat(path)
            made = entry(path, found, listed)
            owner = [path, "o", made[2], 0, [found.st_uid, found.st_gid], ""]
            listed.entries += [made] if made[1] in "eh" else [made, owner]
        except OSError as error:
            if not gone:
                listed.entries.append([path, "e", 0, 0, error.strerror or "cannot be read", ""])
        if listed.excess is not None:
            return


def send(path: str, size: int, out: BinaryIO) -> None:
    """The first bytes of a file; what is missing is sent as zeros."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        while size > 0:
            chunk = file.read(min(size, 1 << 20)) or bytes(min(size, 1 << 20))
            out.write(chunk)
            size -= len(chunk)


def main() -> None:
    roots, skipped = (json.loads(word) for word in sys.argv[1:])
    out = sys.stdout.buffer
    listed = FileListing()
    changed = json.loads(sys.stdin.readline())
    out.write(json.dumps(list(processes())).encode() + b"\n")
    list_changed(changed or {}, listed)
    for root in roots:
        walk(root, os.lstat(root).st_dev, frozenset(skipped), listed)
    found = listed.entries if listed.excess is None else [["the sandbox", "e", 0, 0, listed.excess, ""]]
    for one in found:
        out.write(json.dumps(one).encode() + b"\n")
    out.write(b"null\n")
    out.flush()
    for number in json.loads(sys.stdin.readline()):
        send(found[number][0], found[number][4], out)
    out.flush()


main()
