"""One file for a bug report: the page of a run, its configuration, the end of its log, versions; keys are masked."""

import json
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from opencode_runs.command import replacing
from opencode_runs.report.masking import Masker
from opencode_runs.report.writing import write_page
from opencode_runs.traces.reading import Reading, Run, lines_of, saved_config

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
            bundle.writestr("versions.json", json.dumps(_versions() | {"run": _played(run)}, indent=1))
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


def _played(run: Run) -> dict[str, object]:
    """Versions that the run itself names: of verifiers, and of its agent as configured and as it ran."""
    config = saved_config(run.file.path)
    with suppress(OSError, ValueError, LookupError, TypeError):
        pinned = None if config is None else json.loads(config.read_bytes())["env"]["agent"]["harness"].get("version")
        for _, episode in Reading(lines_of).episodes([run.file]):
            for trace in episode.traces:
                ran = trace.info.get("agent", {}).get("version") if isinstance(trace.info, dict) else None
                return {"verifiers": trace.verifiers, "agent": trace.harness, "pinned": pinned, "ran": ran}
    return {}


def _versions() -> dict[str, object]:
    """Of this machine, not of the one that played, where those differ."""
    found: dict[str, object] = {"python": platform.python_version(), "system": platform.platform(), "commit": _commit()}
    ours = {one.name for one in distributions() if one.name.startswith(("opencode-", "rollout-sandbox", "mathverdict"))}
    for name in (*sorted(ours), *_PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    for program in _PROGRAMS:
        found[program] = _said(program, "--version")
    return found


def _commit() -> str | None:
    """The commit of ours, as far as the installation or its checkout says it."""
    origin = json.loads(distribution("opencode-runs").read_text("direct_url.json") or "{}")
    place = url2pathname(urlsplit(origin.get("url", "")).path)
    known: str | None = origin.get("vcs_info", {}).get("commit_id")
    return known or (_said("git", "-C", place, "describe", "--always", "--dirty", "--abbrev=40") if place else None)


def _said(program: str, *arguments: str) -> str | None:
    path = shutil.which(program)
    done = path and subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    return (done.stdout.strip() or None) if done else None
