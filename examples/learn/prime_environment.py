"""Runs this program once more, in the environment that has prime-rl."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from scripts.try_prime_rl import ENVIRONMENT, ROOT, has_torch, make_environment, uv

PYTHON = "3.12"
"""That prime-rl takes."""


def is_here() -> bool:
    """Whether this is that environment."""
    return Path(sys.prefix) == ENVIRONMENT


def is_checkout(path: Path) -> bool:
    """Whether prime-rl is there."""
    return (path / "packages" / "prime-rl-configs").is_dir()


def run_there(checkout: Path, arguments: Sequence[str]) -> NoReturn:
    """Make the environment, with torch for the CPU if it has none yet, and become the program there.

    Raises:
        SystemExit: the environment could not be made; the message is on standard error.
    """
    make_environment(checkout.resolve(), PYTHON)
    if not has_torch():
        uv("pip", "install", "--quiet", "--python", str(ENVIRONMENT), "--torch-backend", "cpu", "torch", "matplotlib")
    programs = ENVIRONMENT / "bin"
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    argv = [str(programs / "python"), "-m", "examples.learn", *arguments]
    os.execve(argv[0], argv, {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path})
