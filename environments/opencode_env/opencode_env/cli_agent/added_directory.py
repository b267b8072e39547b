"""A directory of this machine that unconfined rollouts add, and that goes with the last of them.

Invariant: a directory that was there before any rollout, or that a rollout of any process still uses, is never removed.
The lock file of a directory is held shared by every rollout that uses it, and says whether a rollout added it.
"""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from agent_sandbox.file_lock import private_directory
from verifiers.v1.utils.paths import CACHE_DIR

_LOCKS = CACHE_DIR / "runtimes" / "unconfined-locks"
_ADDED = b"added by a rollout"


class AddedDirectory:
    """One rollout's use of the directory `path`, from now to `release` (blocking, below a millisecond as a rule)."""

    def __init__(self, path: str) -> None:
        lineage = [*reversed(Path(path).parents), Path(path)]
        name = hashlib.sha256(path.encode()).hexdigest()[:32]
        self._fd: int | None = os.open(private_directory(_LOCKS) / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        recorded = os.pread(self._fd, 4096, 0).partition(b"\n")
        new = [part for part in lineage if not os.path.lexists(part)]
        if new:
            os.truncate(self._fd, 0)
            os.pwrite(self._fd, b"%s\n%s" % (_ADDED, os.fsencode(new[0])), 0)
            self._top: Path | None = new[0]
        else:
            self._top = Path(os.fsdecode(recorded[2])) if recorded[0] == _ADDED else None

    def release(self) -> None:
        """Remove what was added, if this was its last user; idempotent."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            if self._top is not None:
                _remove(self._top)
                os.truncate(fd, 0)
        finally:
            os.close(fd)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
