"""A YAML or JSON text with the line of everything in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from opencode_env.tool_backends.errors import BackendFileError, Problem

Place = Sequence[int | str]
"""The way to a value: keys of mappings and positions in lists."""


class Document:
    """The content of a file, and where each part of it stands."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            BackendFileError: it cannot be read, or is not YAML.
        """
        self.path = path
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
        """What is wrong at a place, or where it would have to be; as Python would write it,
        `backends[0].docker_image`."""
        words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        return Problem(self.line(place), words.removeprefix(".") or "the file", message)

    def line(self, place: Place) -> int:
        """The line of a place, from 1; of what is missing, the line of what it is missing from."""
        node, line = self._root, 1 if self._root is None else self._root.start_mark.line + 1
        for step in place:
            found = _step(node, step)
            if found is None:
                break
            node, line = found
        return line


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
