"""The scorer bundle: math-verify, what it needs, `mathverdict` and our programs, as a directory and as one zip file.

It is made of files that match the checksums of their installation, once per content and Python version of a machine.
"""

import asyncio
import base64
import hashlib
import logging
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import mathverdict
from rollout_sandbox.errors import ScoringError

from opencode_rubrics.cache import cache_root, make_once

logger = logging.getLogger("verifiers.v1.opencode_rubrics.math.scorer_bundle")

SANDBOX_ROOT = "/opt/opencode-scorer"
"""Where a sandbox shows the bundle's directory, followed by its digest."""

_DISTRIBUTIONS = ("math-verify", "latex2sympy2-extended", "antlr4-python3-runtime", "sympy", "mpmath")
_PACKAGES = frozenset({"math_verify", "latex2sympy2_extended", "antlr4", "sympy", "mpmath"})
_OWN = (Path(mathverdict.__path__[0]), Path(__file__).parent / "verdict_programs")
_SKIPPED = frozenset({"tests", "testing", "benchmarks", "__pycache__"})
_KEPT_TESTING = "sympy/testing"
"""sympy imports its own test runner."""


@dataclass(frozen=True)
class ScorerBundle:
    """A complete bundle on this machine."""

    directory: Path

    @property
    def library(self) -> Path:
        """The directory to put on an import path; its byte code fits this machine's Python."""
        return self.directory / "lib"

    @property
    def archive(self) -> Path:
        """The same as one zip file, which an interpreter of any version imports from."""
        return self.directory / "scorer.zip"

    @property
    def target(self) -> str:
        """Absolute path of the library in a sandbox that shows it."""
        return f"{SANDBOX_ROOT}/{self.directory.name}"

    @property
    def archive_target(self) -> str:
        """Absolute path of the zip file in an image that holds it."""
        return f"{self.target}.zip"


async def ensure_bundle(root: Path | None = None) -> ScorerBundle:
    """The bundle of the installed versions, made on first use (some ten seconds, off the event loop). A `ScoringError`
    if a distribution is missing or changed since it was installed, or the cache cannot be written."""
    try:
        return await asyncio.to_thread(_ensure, root or cache_root())
    except (OSError, subprocess.SubprocessError) as error:
        raise ScoringError(
            f"the scorer bundle cannot be made in {root or cache_root()}: {error}; free some disk space or set "
            "OPENCODE_ENV_CACHE to a writable directory"
        ) from error


def _ensure(root: Path) -> ScorerBundle:
    try:
        found = [distribution(name) for name in _DISTRIBUTIONS]
    except PackageNotFoundError as error:
        raise ScoringError(f"{error.name} is not installed: install opencode-rubrics with its dependencies") from error
    digest = hashlib.sha256(sys.implementation.cache_tag.encode())
    for one in found:
        digest.update(f"{one.name}=={one.version}\0".encode())
    for source in sorted(path for folder in _OWN for path in folder.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    bundle = ScorerBundle(root / f"scorer-{digest.hexdigest()[:16]}")
    make_once(bundle.directory, bundle.archive.name, lambda directory: _fill(ScorerBundle(directory), found))
    return bundle


def _fill(staged: ScorerBundle, found: list[Distribution]) -> None:
    logger.info("making the scorer bundle: once per machine")
    for one in found:
        _copy(one, staged.library)
    for folder in _OWN:
        shutil.copytree(folder, staged.library / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    compiled = [sys.executable, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    compiled += ["-s", str(staged.library), "-p", SANDBOX_ROOT]  # the path that error messages show
    subprocess.run([*compiled, str(staged.library)], check=True, capture_output=True, timeout=600)
    with zipfile.ZipFile(staged.archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in sorted([*staged.library.rglob("*.py"), *staged.library.glob("*.dist-info/METADATA")]):
            name = path.relative_to(staged.library)
            archive.write(path, name)
            cached = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
            if cached.exists():
                # Beside the source, where zipimport looks; another Python version falls back to the source.
                archive.write(cached, name.with_suffix(".pyc"))


def _copy(one: Distribution, library: Path) -> None:
    """Copy a distribution's modules, each checked against the SHA-256 in its RECORD."""
    for file in one.files or []:
        # latex2sympy2_extended asks which ANTLR version is installed.
        metadata = file.parts[0].endswith(".dist-info") and file.name == "METADATA"
        tests = _SKIPPED & set(file.parts) and not str(file).startswith(_KEPT_TESTING)
        if not metadata and (file.parts[0] not in _PACKAGES or file.suffix == ".pyc" or tests):
            continue
        data = Path(str(file.locate())).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if file.hash is None or file.hash.mode != "sha256" or file.hash.value != digest:
            raise ScoringError(f"{file} of {one.name} {one.version} was changed since it was installed: reinstall it")
        target = library / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
