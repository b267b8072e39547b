"""Reads an answer file inside the sandbox: bounded, and only if it is a regular file.

Invariant: no link is followed at the path itself, nothing is waited for, and at most `max_bytes` are taken.
"""

import os
import stat


class UnusableAnswer(Exception):
    """There is no usable answer; the message is the reason, in one word."""


def read_answer(path: str, max_bytes: int) -> str:
    """The UTF-8 text of the file at `path`.

    Raises:
        UnusableAnswer: nothing, or anything but a regular UTF-8 file of at most `max_bytes`, is there.
    """
    try:
        # Without O_NONBLOCK a FIFO would be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UnusableAnswer("absent") from None
    except OSError:
        raise UnusableAnswer(_why_not_opened(path)) from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UnusableAnswer("not_a_file")
        data = b""
        while len(data) <= max_bytes and (block := os.read(fd, max_bytes + 1 - len(data))):
            data += block
    finally:
        os.close(fd)
    if len(data) > max_bytes:
        raise UnusableAnswer("oversized")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableAnswer("binary") from None
    if "\0" in text:
        raise UnusableAnswer("binary")
    return text


def _why_not_opened(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "absent"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "unreadable" if stat.S_ISREG(mode) else "not_a_file"
