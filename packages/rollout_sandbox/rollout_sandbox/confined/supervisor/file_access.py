"""File access on the host's behalf, resolved by process 1 inside the sandbox.

An open never blocks and never has a side effect on what is not a regular file, and a write never goes
through what lies at its path. Descriptors of regular files, not contents, cross to the host.
"""

import os
import stat

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(path: bytes) -> int:
    """Return a descriptor that reads the regular file at `path`; files of /proc may block and count as not regular."""
    probe = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(probe)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(21, "Is a directory")
        if not stat.S_ISREG(found.st_mode) or found.st_dev == os.stat("/proc").st_dev:
            raise OSError(22, "Not a regular file")
        return os.open(f"/proc/self/fd/{probe}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(probe)


def open_answer(path: bytes, own_descriptors: int) -> int | bytes:
    """Return a descriptor that reads the regular file at `path`, whose last part is not followed if it is a link, or in
    one word why there is none: `absent`, `symlink`, `not_a_file`, `unreadable`."""
    try:
        probe = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        return b"unreadable"
    except OSError:
        return b"absent"
    try:
        found = os.fstat(probe)
        if stat.S_ISLNK(found.st_mode):
            return b"symlink"
        if not stat.S_ISREG(found.st_mode) or found.st_dev == _device(b"/proc"):
            return b"not_a_file"
        return os.open(str(probe), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=own_descriptors)
    except OSError:
        return b"unreadable"
    finally:
        os.close(probe)


def _device(path: bytes) -> int:
    try:
        return os.stat(path).st_dev
    except OSError:  # an image without it
        return -1


def open_log(path: bytes) -> int:
    """Return a descriptor that appends to a fresh file at `path`; what was there is unlinked."""
    os.makedirs(os.path.dirname(path) or b".", exist_ok=True)
    try:  # noqa: SIM105 - `contextlib` would have to be imported at every start
        os.unlink(path)
    except FileNotFoundError:
        pass
    return os.open(path, _NEW_FILE | os.O_APPEND, 0o644)


def write_from(source: int, path: bytes) -> None:
    """Replace `path` by a new file (mode 0644) with the whole content of `source`, and make its parent directories."""
    folder = os.path.dirname(path)
    os.makedirs(folder or b".", exist_ok=True)
    temporary = os.path.join(folder, b".vf-" + os.urandom(8).hex().encode())
    target = os.open(temporary, _NEW_FILE, 0o644)
    try:
        left = os.fstat(source).st_size
        at = 0
        while left > 0:
            sent = os.sendfile(target, source, at, left)
            if sent == 0:
                raise OSError(5, "source ended early")
            at, left = at + sent, left - sent
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(target)
