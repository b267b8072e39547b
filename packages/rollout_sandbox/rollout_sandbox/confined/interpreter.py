"""The Python that runs inside the sandbox: the base installation behind the evaluation's own."""

import os
import sys
from pathlib import PurePosixPath


def base_python() -> str:
    """Return the interpreter behind this one that lies in the base installation, not in a virtual environment."""
    python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return python if os.path.exists(python) else os.path.realpath(sys.executable)


def interpreter_roots() -> list[str]:
    """Return every directory through which this Python's base installation is named, symlinked names included."""
    roots = {sys.base_prefix, os.path.realpath(sys.base_prefix)}
    link = sys.executable
    while os.path.islink(link):
        link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
        if os.path.basename(os.path.dirname(link)) == "bin":
            roots.add(os.path.dirname(os.path.dirname(link)))
    roots.discard(sys.prefix if sys.prefix != sys.base_prefix else "")
    return sorted(root for root in roots if not PurePosixPath(root).is_relative_to("/usr"))
