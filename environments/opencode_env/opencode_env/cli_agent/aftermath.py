"""Programs that wait for the end of this process, also by a SIGKILL, and then remove what it left behind."""

import atexit
import subprocess
from collections.abc import Sequence


def afterwards(argv: Sequence[str]) -> None:
    """Start a program now, in a session of its own, whose stdin closes when this process ends (1 ms).

    A process that ends of itself waits for it.
    """
    remover = subprocess.Popen(
        argv,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(remover.communicate)
