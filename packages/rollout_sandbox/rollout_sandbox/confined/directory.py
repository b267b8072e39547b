"""The host directory of one sandbox: its private files, and the lock that says it is alive.

A directory whose lock is free belongs to nobody; it is removed at the next start of any sandbox of this user. Locks may
not cross machines, and a home may be shared by many: each boot of a machine has a root of its own, and those of others
are looked into only where the file system is this machine's alone.
"""

import contextlib
import fcntl
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from verifiers.v1.utils.paths import CACHE_DIR

from rollout_sandbox.file_lock import locked, private_directory, try_lock
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR

logger = logging.getLogger("verifiers.v1.rollout_sandbox.confined")

_ROOTS = "confined-on-"


_BOOT = Path("/proc/sys/kernel/random/boot_id")


def _root_of(runtimes: Path) -> Path:
    try:
        boot = _BOOT.read_text().strip()[:13]
    except OSError:  # a kernel that shows none
        boot = platform.node()
    return runtimes / f"{_ROOTS}{re.sub('[^A-Za-z0-9_-]', '-', boot)}"


ROOT = _root_of(CACHE_DIR / "runtimes")
_LOCAL = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
"""File systems that one kernel at a time has."""
_DEAD = ".dead-"
_LOCK = "lock"
HOME = "/home/agent"
_PRIVATE = {
    "app": (DEFAULT_WORKDIR, 0o755),
    "tmp": ("/tmp", 0o1777),
    "home": ("/home", 0o755),
    "home/agent": (HOME, 0o755),
    "logs": ("/logs", 0o755),
    "run": ("/run", 0o755),
    "shared": ("/run/agent-code", 0o755),
    "shm": ("/dev/shm", 0o1777),
}
"""Where the sandbox sees each part, and with which mode it starts."""
_MARKS = (0x80086601, 0x80087601, 0x801C581F)
"""FS_IOC_GETFLAGS, FS_IOC_GETVERSION and FS_IOC_FSGETXATTR: what an owner can set of a file beside its mode."""
_MARK_BYTES = 28


def _exclusive(root: Path) -> AbstractContextManager[None]:
    # Only this user may pass: the agent can leave set-uid files of this user's below.
    return locked(private_directory(root) / ".lock")


def remove_tree(path: Path) -> None:
    """Remove a tree that an agent may have filled, whatever its depth and modes; log what stays."""
    while os.path.lexists(path):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue  # another process sweeps it at the same time
        except (OSError, RecursionError):
            # Locked directories, or deeper than Python's recursion or descriptors reach.
            subprocess.run(["chmod", "-R", "u+rwX", "--", path], stderr=subprocess.DEVNULL, check=False)
            done = subprocess.run(["rm", "-rf", "--", path], capture_output=True, check=False)
            if done.returncode != 0:
                logger.warning("sandbox directory %s could not be removed: %r", path, done.stderr[-300:])
                return


def remove_entries(directory: str | Path, *spared: str) -> None:
    """Remove what a directory holds, whatever that is, but the entries of these names."""
    with os.scandir(directory) as found:
        entries = [entry for entry in found if entry.name not in spared]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry))
        else:
            os.unlink(entry)


def _nature(place: str) -> tuple[object, ...]:
    """All that a directory can carry but names, times and what the kernel alone decides: owner, mode, access lists and
    other attributes, marks of the file system, and a size that tells how much it once held."""
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(directory)
        attributes = {name: os.getxattr(directory, name) for name in sorted(os.listxattr(directory))}
        return found.st_uid, found.st_gid, found.st_mode, found.st_size, attributes, *_marks(directory)
    finally:
        os.close(directory)


def _marks(directory: int) -> Iterator[bytes]:
    for request in _MARKS:
        try:
            yield fcntl.ioctl(directory, request, bytes(_MARK_BYTES))
        except OSError:  # a file system that has none
            yield b""


class SandboxDirectory:
    """A new directory in `root` with the private parts of a sandbox, of the user `owner`; locked until `remove`."""

    def __init__(self, name: str, root: Path = ROOT, owner: int | None = None) -> None:
        prefix = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:48] + "-"
        with _exclusive(root):
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
            self._lock = try_lock(self.path / _LOCK)
        assert self._lock is not None  # nobody else knows a new directory's name
        self.hosts, self.passwd = self.path / "hosts", self.path / "passwd"
        """The files that the sandbox sees in /etc."""
        self.log = self.path / "stderr"
        """The file that bubblewrap and process 1 write their errors to."""
        self._owner = owner
        self._temporary: set[str] = set()
        """Directories that were made in the private parts, beside those."""
        self._spared: dict[str, list[str]] = {}
        self._new: dict[str, tuple[tuple[object, ...], int, int]] = {}
        """What each private part is when it is as new: its nature and its two times (ns)."""
        for part, (_, mode) in _PRIVATE.items():
            self.part(part).chmod(mode)
        for place in (self.hosts, self.passwd):
            shutil.copyfile(Path(__file__).parent / "etc" / place.name, place)

    def part(self, relative: str) -> Path:
        """Return the host path of a private part, made if it is missing (before the sandbox starts)."""
        path = self.path / relative
        path.mkdir(exist_ok=True)
        if relative not in _PRIVATE:
            self._temporary.add(relative)
        if self._owner is not None:
            os.chown(path, self._owner, self._owner)
        return path

    def areas(self, workdir: str) -> dict[str, Path]:
        """Return what is writable, by its path inside."""
        areas = {target: self.path / part for part, (target, _) in _PRIVATE.items()}
        if not any(PurePosixPath(workdir).is_relative_to(target) for target in areas):
            areas[workdir] = self.part("workdir")
        return areas

    def empty(self) -> None:
        """Make the private parts as they were when this was called first, before a program ran; no process may be left
        in the sandbox now (blocking). An `OSError`: a program has marked the directory itself."""
        first = not self._new
        for part, (_, mode) in _PRIVATE.items():
            place = os.path.join(self.path, part)
            os.chmod(place, mode)
            if first:
                # What bubblewrap has made to mount on stays; removed here it would be gone inside, too.
                self._spared[part] = [name for name in os.listdir(place) if f"{part}/{name}" not in self._temporary]
            remove_entries(place, *self._spared[part])
        for part in _PRIVATE:
            place = os.path.join(self.path, part)
            found, nature = os.stat(place), _nature(place)
            expected, *times = self._new.setdefault(part, (nature, found.st_atime_ns, found.st_mtime_ns))
            if nature != expected:
                raise OSError(f"a program has changed the directory {_PRIVATE[part][0]} itself")
            os.utime(place, ns=(times[0], times[1]))

    def log_tail(self) -> str:
        try:
            return self.log.read_bytes()[-2000:].decode(errors="replace").strip()
        except OSError:
            return ""

    def remove(self) -> None:
        """Remove the directory and release its lock; idempotent."""
        if self._lock is None:
            return
        # The lock is last and under the user's: without it the rest would be swept as a dead one's.
        remove_entries(self.path, _LOCK)
        with _exclusive(self.path.parent):
            remove_tree(self.path)
        lock, self._lock = self._lock, None
        os.close(lock)


def sweep(root: Path = ROOT) -> None:
    """Remove the directories that processes which were killed have left behind."""
    dead: list[Path] = []
    with _exclusive(root):
        for path in [entry for entry in root.iterdir() if entry.is_dir()]:
            if path.name.startswith(_DEAD):
                dead.append(path)
                continue
            try:
                lock = try_lock(path / _LOCK)
            except FileNotFoundError:  # its owner has just removed it
                continue
            if lock is not None:
                dead.append(path.rename(path.with_name(_DEAD + path.name)))
                os.close(lock)
    for path in dead:
        remove_tree(path)


def sweep_former(root: Path = ROOT) -> None:
    """Remove what this machine left before it started anew, where nobody else can see these directories."""
    others = [place for place in root.parent.glob(f"{_ROOTS}*") if place != root]
    if others and _is_local(root):
        for place in others:
            sweep(place)
            with contextlib.suppress(OSError):  # somebody does the same
                (place / ".lock").unlink()
                place.rmdir()


def _is_local(place: Path) -> bool:
    device = place.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    found = {fields[fields.index("-") + 1] for fields in mounts if fields[2] == name}
    return bool(found) and found <= _LOCAL
