"""Whether a task directory is one of several containers (Compose), which is refused, or holds such a file as data."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from opencode_env.taskset.errors import DatasetError

DOCKERFILE = "Dockerfile"

_HARBORS = "docker-compose.yaml"
"""The one name that Harbor reads."""
_NAMES = (_HARBORS, "docker-compose.yml", "compose.yaml", "compose.yml")
_CONTINUED = re.compile(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*")
_HEREDOC = re.compile(
    r"^(?P<start>[^\n#]*<<-?[ \t]*(?P<quote>[\"']?)(?P<end>\w+)(?P=quote)[^\n]*\n)(?:.*\n)*?[ \t]*(?P=end)[ \t]*$",
    re.MULTILINE,
)
"""Lines that an instruction has as its input are not the Dockerfile's."""
_COPY = re.compile(r"^[ \t]*(?:COPY|ADD)[ \t]+(?P<words>.+)$", re.IGNORECASE | re.MULTILINE)


def refuse_compose(directory: Path) -> None:
    """Refuse a Compose file beside a task's Dockerfiles, unless the Dockerfile there copies it into its image.

    A Dockerfile that copies everything copies Harbor's own Compose file, too, which stays one.

    Raises:
        DatasetError: there is one.
    """
    for place in ("environment", "tests"):
        sources = list(_sources(directory / place / DOCKERFILE))
        for name in _NAMES:
            if os.path.lexists(directory / place / name) and not _copied(name, sources):
                raise DatasetError(
                    f"{directory}: {place}/{name}: tasks of several containers (Compose) are not supported: leave this "
                    "task out of the folder, or run it with verifiers' own taskset `harbor`"
                )


def _copied(name: str, sources: list[str]) -> bool:
    named = [source for source in sources if source.strip("*")]
    return any(fnmatchcase(name, source) for source in named) or (len(named) < len(sources) and name != _HARBORS)


def _sources(dockerfile: Path) -> Iterator[str]:
    """What a Dockerfile copies out of its context; the whole of it is "*"."""
    if not dockerfile.is_file():
        return
    text = _CONTINUED.sub(" ", dockerfile.read_text(encoding="utf-8", errors="replace"))
    for found in _COPY.finditer(_HEREDOC.sub(r"\g<start>", text)):
        words = [word for word in found["words"].split() if not word.startswith("<<")]
        flags = [word for word in words if word.startswith("--")]
        if any(flag.startswith("--from=") for flag in flags):
            continue
        for source in _words(" ".join(words[len(flags) :]))[:-1]:
            yield PurePosixPath("/", source).as_posix().lstrip("/") or "*"


def _words(text: str) -> list[str]:
    """The sources and the target, written as words or as a JSON array."""
    try:
        return [str(word) for word in json.loads(text)] if text.startswith("[") else shlex.split(text)
    except ValueError:
        return []
