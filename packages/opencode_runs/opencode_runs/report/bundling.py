"""One file for a bug report: the page of a run, its configuration, the end of its log, versions; keys are masked."""

import json
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from opencode_runs.command import replacing
from opencode_runs.report.masking import Masker
from opencode_runs.report.writing import write_page
from opencode_runs.traces.reading import Run, saved_config

MAX_LOG = 2 << 20
"""Bytes of each log that are taken, from its end."""
_PACKAGES = ("verifiers", "renderers", "openai", "datasets", "aiohttp", "pydantic", "prime-sandboxes")
_PROGRAMS = ("bwrap", "podman", "docker")


def write_bundle(run: Run, output: Path, *, max_mb: float) -> Counter[str]:
    """Write a zip file of one run; returns how often each masking rule was used.

    Raises:
        BadInputError: the run cannot be read as traces of this schema, or the file cannot be written.
    """
    masker = Masker()
    with tempfile.TemporaryDirectory() as scratch, replacing([output]) as (place,):
        page = Path(scratch) / "report.html"
        masked = write_page([run], page, max_mb=max_mb).masked
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.write(page, "report.html")
            bundle.writestr("versions.json", json.dumps(_versions(), indent=1))
            for name, text in _texts(run.file.path):
                bundle.writestr(name, masker.text(text))
    return masked + masker.counts


def _texts(trace_file: Path) -> Iterator[tuple[str, str]]:
    if (config := saved_config(trace_file)) is not None:
        yield "configuration.json", config.read_text(errors="replace")
    for log in sorted((trace_file.parent / "logs").glob("attempt_*/*.log")):
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MAX_LOG))
            yield f"logs/{log.parent.name}-{log.name}", file.read().decode(errors="replace")


def _versions() -> dict[str, str | None]:
    """Of this machine, not of the one that played, where those differ."""
    found: dict[str, str | None] = {"python": platform.python_version(), "system": platform.platform()}
    ours = {one.name for one in distributions() if one.name.startswith(("opencode-", "rollout-sandbox", "mathverdict"))}
    for name in (*sorted(ours), *_PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    for program in _PROGRAMS:
        path = shutil.which(program)
        done = path and subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
        found[program] = done.stdout.strip() if done else None
    return found
