"""Reads a file of tool backends, and says of everything wrong in it in which line it stands."""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from opencode_env.tool_backends.checks import Place, found_in
from opencode_env.tool_backends.description import AppConfig


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a file: the line, the place in words, and what to change."""

    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.place}: {self.message}"


class BackendFileError(ValueError):
    """A file of tool backends cannot be used; the message has one line for each problem."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        super().__init__(path, tuple(problems))
        self.path = path
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.path} describes no tool backends:", *map(str, self.problems)])


class Document:
    """The content of a file, and where each part of it stands."""

    def __init__(self, path: Path) -> None:
        try:
            loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
            self._root = loader.get_single_node()
            self.doubled = list(_doubled_keys(self._root))
            """Keys that a mapping says twice; `content` has the last."""
            self.content: Any = None if self._root is None else loader.construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 1 if mark is None else mark.line + 1
            raise BackendFileError(path, [Problem(line, "the text", f"is not YAML: {error.problem}")]) from error
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise BackendFileError(path, [Problem(1, "the text", f"cannot be read: {error}")]) from error

    def problem(self, place: Place, message: str) -> Problem:
        """What is wrong at a place, as Python would write it, `backends[0].docker_image`; of what is missing, the line
        is that of what it is missing from."""
        words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        node, line = self._root, 1 if self._root is None else self._root.start_mark.line + 1
        for step in place:
            if (found := _step(node, step)) is None:
                break
            node, line = found
        return Problem(line, words.removeprefix(".") or "the file", message)


def _step(node: yaml.Node | None, step: int | str) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step].start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return value, key.start_mark.line + 1
    return None


def _doubled_keys(node: yaml.Node | None) -> Iterator[Problem]:
    """Keys that a mapping says twice; YAML would take the last without a word."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _doubled_keys(item)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if key.value in lines:
                yield Problem(line, key.value, f"stands in line {lines[key.value]} already; take one of them away")
            lines[key.value] = line
        yield from _doubled_keys(value)


_STAND_INS = {
    "backend_name_ref": "(unnamed {n})",
    "base_url": "http://localhost",
    "tool_name": "list_tools",
    "bind": "/nowhere",
}
"""Of fields that must be there."""
_ROUNDS = 20


class Salvage:
    """A file's content without what was wrong with its types and keys."""

    def __init__(self, content: Any) -> None:
        self.errors: list[ErrorDetails] = []
        """What was wrong in the content as it was given."""
        self.config = AppConfig()
        self._taken: list[Place] = []
        self._content = copy.deepcopy(content)
        for _ in range(_ROUNDS):
            try:
                self.config = AppConfig.model_validate(self._content)
                break
            except ValidationError as error:
                found = error.errors(include_url=False)
                self.errors = self.errors or found
                for one in found:
                    self._take_out(one["loc"], unknown=one["type"] == "extra_forbidden")

    def follows(self, place: Place, message: str) -> bool:
        """Whether a mistake is but the absence of what was taken out."""
        for taken in self._taken:
            name, parent = taken[-1], taken[:-1]
            named = isinstance(name, str) and re.search(rf"\b{re.escape(name)}\b", message)
            if place[: len(taken)] == taken or (named and place[: len(parent)] == parent):
                return True
        return False

    def _take_out(self, path: Place, *, unknown: bool) -> None:
        """Take one wrong thing out, or put what will do in its place."""
        while path:
            holder = self._at(path[:-1])
            if isinstance(holder, dict) and isinstance(path[-1], str):
                break
            if isinstance(holder, list) and path[:-1] == ("backends",) and isinstance(path[-1], int):
                break
            path = path[:-1]
        if not path:
            self._content = {}
            return
        name = path[-1]
        self._taken.append(path)
        if isinstance(holder, list):
            holder[int(name)] = _stand_in_backend(int(name))
        elif name == "orchestration_mode" and not unknown:
            self._taken[-1] = path[:-1]  # without it nothing else can be judged
            self._at(path[:-2])[path[-2]] = _stand_in_backend(int(path[-2]))
        elif name in _STAND_INS and not unknown:
            holder[name] = _STAND_INS[str(name)].format(n=len(self._taken))
        elif path[:-1] == ("global_remote_apis",):
            holder[name] = {"base_url": _STAND_INS["base_url"]}
        else:
            holder.pop(name, None)

    def _at(self, place: Place) -> Any:
        found = self._content
        for step in place:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return None
        return found


def _stand_in_backend(index: int) -> dict[str, str]:
    return {"backend_name_ref": f"(unreadable {index})", "orchestration_mode": "remote_url", "url": "http://localhost"}


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
    wrong: list[tuple[Place, str]] = [
        (one["loc"], _message(one["type"], one["msg"], one["loc"])) for one in found.errors
    ]
    wrong += [one for one in found_in(found.config, directory) if not found.follows(*one)]
    problems = [*document.doubled, *(document.problem(place, message) for place, message in wrong)]
    if problems:
        raise BackendFileError(path, sorted(problems, key=lambda problem: problem.line))
    return BackendFile(found.config, directory)


def _message(kind: str, message: str, place: Place) -> str:
    if kind == "extra_forbidden" and place in _OTHER_FORMS:
        return _OTHER_FORM
    if kind == "extra_forbidden":
        return "is not a key that is known here; take it away, or look for a misspelling"
    if kind == "missing":
        return "is missing"
    return message[:1].lower() + message[1:]
