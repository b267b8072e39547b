"""The host directories of this process's containers, and what removes both should it be killed.

A container has its directory before podman hears of it and until it is removed. So a shell that waits for
the end of this process, in a session of its own, finds what a SIGKILL left in the names of directories.
"""

import functools
import tempfile
import uuid
from pathlib import Path

from rollout_sandbox.at_exit import run_at_exit


def make_directory(container: str) -> Path:
    """Make the directory of the container with this name, `vf-` and what has no hyphen."""
    path = Path(_prefix() + container.removeprefix("vf-"))
    path.mkdir(mode=0o700)
    return path


@functools.cache
def _prefix() -> str:
    """The beginning of the names of this process's directories; starts the shell (once, 1 ms)."""
    prefix = f"{tempfile.gettempdir()}/vf-podman-{uuid.uuid4().hex}-"
    run_at_exit(["/bin/sh", str(Path(__file__).with_suffix(".sh")), prefix])
    return prefix
