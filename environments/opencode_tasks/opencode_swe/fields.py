"""Cells of the rows that software engineering datasets have, read into what `SweProblem` wants.

Every function of a row raises `DatasetError` where a cell holds something else.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from opencode_env.taskset.row import Row
from opencode_env.taskset.values import text

_HEADER = re.compile(r"^@@ -(\S+) \+(\S+) @@", re.MULTILINE)
_SWAPPED = {
    "--- ": "+++ ",
    "+++ ": "--- ",
    "new file mode ": "deleted file mode ",
    "deleted file mode ": "new file mode ",
    "rename from ": "rename to ",
    "rename to ": "rename from ",
    "old mode ": "new mode ",
    "new mode ": "old mode ",
}


def text_of(row: Row, *names: str) -> str:
    """The first of these cells that holds text; empty without one."""
    return next((value for name in names if (value := text(row, name)) is not None), "")


def required_text(row: Row, *names: str) -> str:
    """As `text_of`, but a row without any such text is refused."""
    return text_of(row, *names) or row.refuse(names[0], "is missing or empty")


def value_of(row: Row, name: str) -> Any:
    """A cell that holds JSON, as text or as it is."""
    value = row.cell(name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        row.refuse(name, f"holds no JSON: {error}")


def names_of(row: Row, name: str) -> list[str]:
    """A list of tests, also as JSON text."""
    found = value_of(row, name)
    if not isinstance(found, list | tuple) or not all(isinstance(test, str) for test in found):
        row.refuse(name, "must be a list of tests")
    return list(found)


_SIGNS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}
_TEST_PATH = re.compile(r"(?:^|/)(?:tests?|testing)(?:/|$)|(?:^|/)(?:test_[^/]*|[^/]*_test|conftest)\.py$")


def parsed_patch(row: Row, name: str) -> str:
    """The patch that a commit of R2E-Gym tells in parts, without its tests; empty where the cell is."""
    found = value_of(row, name)
    if not found:
        return ""
    try:
        return "".join(_file_patch(file) for file in found["file_diffs"])
    except (KeyError, TypeError, AttributeError) as error:
        row.refuse(name, f"is not a commit of R2E-Gym: {type(error).__name__}: {error}")


def _file_patch(file: dict[str, Any]) -> str:
    path, hunks = file["header"]["file"]["path"], file["hunks"]
    if file.get("is_binary_file") or _TEST_PATH.search(path) or not hunks:
        return ""
    old, new = (hunks[0]["descriptor"][side]["start"] == 0 for side in ("old_range", "new_range"))
    names = "/dev/null" if old else f"a/{path}", "/dev/null" if new else f"b/{path}"
    mode = "new file mode 100644\n" if old else "deleted file mode 100644\n" if new else ""
    head = f"diff --git a/{path} b/{path}\n{mode}--- {names[0]}\n+++ {names[1]}\n"
    return head + "".join(_hunk_patch(hunk["descriptor"], hunk["line_group"]["all_lines"]) for hunk in hunks)


def _hunk_patch(place: dict[str, Any], lines: list[dict[str, str]]) -> str:
    old, new = (f"{place[side]['start']},{_count(place[side])}" for side in ("old_range", "new_range"))
    return f"@@ -{old} +{new} @@\n" + "".join(f"{_SIGNS[line['type']]}{line['content']}\n" for line in lines)


def _count(side: dict[str, Any]) -> int:
    return 1 if side.get("length") is None else int(side["length"])


def reversed_patch(patch: str) -> str:
    """The patch that takes this one back; of text files."""
    return "\n".join(_reversed_lines(patch.split("\n")))


def _reversed_lines(lines: list[str]) -> Iterator[str]:
    held: list[str] = []
    hunk = False
    for line in lines:
        if line.startswith("diff --git "):
            hunk = False
            first, _, second = line.removeprefix("diff --git a/").partition(" b/")
            yield from held
            held = []
            yield f"diff --git a/{second} b/{first}"
        elif found := _HEADER.match(line):
            hunk = True
            yield from held
            held = []
            yield f"@@ -{found[2]} +{found[1]} @@{line[found.end() :]}"
        elif hunk and line.startswith("+"):
            yield f"-{line[1:]}"
        elif hunk and line.startswith("-"):
            held.append(f"+{line[1:]}")
        elif hunk:
            yield from held
            held = []
            yield line
        else:
            swapped = next((key for key in _SWAPPED if line.startswith(key)), None)
            if swapped in ("--- ", "rename from ", "old mode "):
                held.append(_swapped(line, swapped))
            elif swapped is not None:
                yield _swapped(line, swapped)
                yield from held
                held = []
            else:
                yield line
    yield from held


def _swapped(line: str, key: str) -> str:
    rest = line[len(key) :]
    if key in ("--- ", "+++ "):
        rest = re.sub(r"^[ab]/", lambda found: "b/" if found[0] == "a/" else "a/", rest)
    return f"{_SWAPPED[key]}{rest}"
