"""A process of a test, which ends with it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def child(*command: str | Path, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run a command until the block ends: `Popen` alone waits for it, for ever where the test fails in the block."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()
