"""Reads a file of tool backends, and says of everything wrong in it in which line it stands."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from opencode_env.simulation.backends.checks import found_in
from opencode_env.simulation.backends.description import AppConfig
from opencode_env.simulation.backends.document import Document
from opencode_env.simulation.backends.errors import BackendFileError


@dataclass(frozen=True)
class BackendFile:
    """A file that can be used."""

    config: AppConfig
    directory: Path
    """What its relative paths are relative to."""


def read_backends(path: Path) -> BackendFile:
    """Read a YAML or JSON file.

    Raises:
        BackendFileError: it cannot be used; the message names each line.
    """
    document = Document(path)
    content = {} if document.content is None else document.content
    try:
        config = AppConfig.model_validate(content)
    except ValidationError as error:
        problems = [document.problem(found["loc"], _message(found["type"], found["msg"])) for found in error.errors()]
        raise BackendFileError(path, problems) from None
    directory = path.resolve().parent
    if problems := [document.problem(place, message) for place, message in found_in(config, directory)]:
        raise BackendFileError(path, problems)
    return BackendFile(config, directory)


def _message(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "is no key that is known here; take it away, or look for a misspelling"
    if kind == "missing":
        return "is missing"
    return message[:1].lower() + message[1:]
