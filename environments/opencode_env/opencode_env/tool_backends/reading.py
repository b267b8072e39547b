"""Reads a file of tool backends, and says of everything wrong in it in which line it stands."""

from dataclasses import dataclass
from pathlib import Path

from opencode_env.tool_backends.checks import found_in
from opencode_env.tool_backends.description import AppConfig
from opencode_env.tool_backends.document import Document, Place
from opencode_env.tool_backends.errors import BackendFileError
from opencode_env.tool_backends.salvage import Salvage

_OTHER_FORMS = (("mcpServers",), ("mcp_servers",), ("servers",), ("mcp",))
"""Under what other programs' files have their servers."""
_OTHER_FORM = (
    "is how other programs name their servers; here each is an entry of backends: {backend_name_ref: NAME, "
    "orchestration_mode: local_program, command: [PROGRAM, ARGUMENT, …], env: {…}}, or with a URL {backend_name_ref: "
    "NAME, orchestration_mode: remote_url, url: …, auth_type: bearer_token, auth_details: {token: …}}"
)


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
    found = Salvage({} if document.content is None else document.content)
    directory = path.resolve().parent
    problems = [
        *document.doubled,
        *(document.problem(one["loc"], _message(one["type"], one["msg"], one["loc"])) for one in found.errors),
        *(
            document.problem(place, message)
            for place, message in found_in(found.config, directory)
            if not found.follows(place, message)
        ),
    ]
    if problems:
        raise BackendFileError(path, sorted(problems, key=lambda problem: problem.line))
    return BackendFile(found.config, directory)


def _message(kind: str, message: str, place: Place) -> str:
    if kind == "extra_forbidden" and tuple(place) in _OTHER_FORMS:
        return _OTHER_FORM
    if kind == "extra_forbidden":
        return "is not a key that is known here; take it away, or look for a misspelling"
    if kind == "missing":
        return "is missing"
    return message[:1].lower() + message[1:]
