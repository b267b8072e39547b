"""Programs that wait for the end of this process, also by a SIGKILL, and then remove what it left behind."""

import atexit
import subprocess
from collections.abc import Sequence

_REMOVER = 'read -r _; for _ in $(seq 60); do rm -rf "$1"* && exit; sleep 1; done'
"""Again where a program still writes: it has been killed, too, and may take a moment to die."""


def run_at_exit(argv: Sequence[str]) -> None:
    """Start a program now whose stdin closes when this process ends, which waits for it (1 ms)."""
    remover = subprocess.Popen(
        argv,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(remover.communicate)


def remove_at_exit(prefix: str) -> None:
    """Have everything removed, at the end of this process, whose path begins with `prefix`."""
    run_at_exit(["/bin/sh", "-c", _REMOVER, "sh", prefix])
