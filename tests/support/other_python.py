"""Pythons with packages that do not fit beside verifiers, made once for this machine."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opencode_rubrics.cache import make_once

from tests.support.light_opencode import REAL


def python_with(name: str, *packages: str) -> Path:
    """A Python with these packages; without uv the test fails in CI, and is skipped elsewhere."""
    uv = shutil.which("uv")
    if uv is None and os.environ.get("CI"):
        pytest.fail(f"uv is not on PATH: {name} cannot be installed")
    if uv is None:
        pytest.skip("uv is not on PATH")
    digest = hashlib.sha256(repr((packages, sys.version)).encode()).hexdigest()[:16]
    directory = Path(REAL["OPENCODE_ENV_CACHE"], f"tests-{name}-{digest}")

    def fill(place: Path) -> None:
        subprocess.run([uv, "venv", "-q", "--allow-existing", "--python", sys.executable, str(place)], check=True)
        argv = [uv, "pip", "install", "-q", "--python", str(place / "bin" / "python"), *packages]
        subprocess.run(argv, check=True, timeout=600)
        (place / "complete").touch()

    make_once(directory, "complete", fill)
    return directory / "bin" / "python"
