"""The cache of this user's machine: directories that are made once and shared by every process.

A directory with its marker in it is complete; one that is being made has another name, and a lock for its one maker.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from rollout_sandbox.file_lock import locked
from verifiers.v1.errors import SandboxError


def cache_root() -> Path:
    """`$OPENCODE_ENV_CACHE`, else `opencode-env` in `$XDG_CACHE_HOME` or `~/.cache`."""
    if explicit := os.environ.get("OPENCODE_ENV_CACHE"):
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")) / "opencode-env"


def require_cache(*places: Path) -> None:
    """Make the directories of caches (blocking); a `SandboxError` says what to set if one cannot be written."""
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            raise SandboxError(
                f"the cache {place} cannot be written ({error.strerror}): set HOME to a directory of this user's "
                "(OPENCODE_ENV_CACHE moves only what is downloaded)"
            ) from error


def make_once(directory: Path, marker: str, fill: Callable[[Path], None]) -> None:
    """Make `directory`, and its parents, unless it holds the file `marker` (blocking). `fill` writes that and all else
    into the empty directory that it is given; what it raises is passed on, and nothing of it stays. An `OSError` if the
    cache cannot be written."""
    if (directory / marker).exists():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.parent / f".{directory.name}.lock"):
        if (directory / marker).exists():
            return
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as scratch:
            staged = Path(scratch) / "made"
            staged.mkdir()
            staged.chmod(0o755)  # others may read it, whatever the umask
            fill(staged)
            if directory.exists():
                shutil.rmtree(directory)
            staged.rename(directory)
