"""Makes the files that `list_and_send.py` has listed, in a new sandbox in which nothing runs: put_files.py.

Its standard input holds the entries, one JSON list a line, a line `null`, and the contents of the files in their order.
Directories that are there stay, and get the listed modes and times as the others; what else an image has in the place
of an entry goes.
"""

import json
import os
import shutil
import sys
from typing import Any, BinaryIO


def content(path: str, mode: int, size: int, source: BinaryIO) -> None:
    """Make a file; where it has nothing but zeros it takes no disk, as a hole of the one that was kept."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        while size > 0:
            chunk = source.read(min(size, 1 << 20))
            if not chunk:
                sys.exit(f"the content of {path!r} ends too early")
            if chunk == bytes(len(chunk)):
                file.seek(len(chunk), os.SEEK_CUR)
            else:
                file.write(chunk)
            size -= len(chunk)
        file.truncate()
        os.fchmod(file.fileno(), mode)


def make(path: str, kind: str, mode: int, what: Any, source: BinaryIO) -> None:
    if kind == "o":
        os.chown(path, *what, follow_symlinks=False)
        if not os.path.islink(path):
            os.chmod(path, mode)  # which a change of the owner takes from a program
        return
    directory = os.path.isdir(path) and not os.path.islink(path)
    if directory and kind != "d":
        shutil.rmtree(path)
    elif not directory and os.path.lexists(path):
        os.unlink(path)
    if kind == "f":
        content(path, mode, what, source)
    elif kind == "l":
        os.symlink(what, path)
    elif kind == "h":
        os.link(what, path, follow_symlinks=False)
    elif kind == "p":
        os.mkfifo(path)
        os.chmod(path, mode)
    elif kind == "d" and not directory:
        os.mkdir(path, 0o700)


def main() -> None:
    source, entries = sys.stdin.buffer, []
    while (one := json.loads(source.readline())) is not None:
        entries.append(one)
    for path, kind, mode, modified, what, _ in entries:
        make(path, kind, mode, what, source)
        if kind in "flp":
            os.utime(path, ns=(modified, modified), follow_symlinks=False)
    for path, kind, mode, modified, _, _ in reversed(entries):
        if kind == "d":
            os.chmod(path, mode)
            os.utime(path, ns=(modified, modified))
    sys.stdout.write("made\n")


main()
