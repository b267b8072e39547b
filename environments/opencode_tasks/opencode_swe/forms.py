"""Rows of eight datasets as the one row form: told by their columns, mapped by a function each.

Invariant: what would tell the agent the solution or the tests goes into the field `swe` alone, which never enters its
sandbox before it has ended.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from opencode_env.taskset.cells import commands, identifier, text
from opencode_env.taskset.row import Row
from opencode_rubrics import SweProblem
from opencode_rubrics.swe.foreign_parsers import command_elsewhere, lacking
from opencode_rubrics.swe.parsers import EXIT_TEST, PARSERS
from pydantic import ValidationError

_HEAD = (
    (r"^diff --git a/(.*?) b/(.*)$", r"diff --git a/\2 b/\1"),
    (r"^(rename from|old mode) (.*)\n(rename to|new mode) (.*)$", r"\1 \4\n\3 \2"),
    (r"^--- \"a/(.*)\"\n\+\+\+ \"b/(.*)\"$", r'--- "a/\2"\n+++ "b/\1"'),
    (r"^--- (?!\")(?:a/)?(.*)\n\+\+\+ (?:b/)?(.*)$", r"--- a/\2\n+++ b/\1"),
    (r"^((?:---|\+\+\+) )[ab]/(?=/dev/null$)", r"\1"),
)
"""How the lines before the hunks of a file are reversed: patterns, and what stands in their place."""


def text_of(row: Row, *names: str) -> str:
    """The first of these cells that holds text; empty without one."""
    return next((value for name in names if (value := text(row, name)) is not None), "")


def required_text(row: Row, *names: str) -> str:
    """Return the text as `text_of` does; a row without any such text is refused."""
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
    return "".join(map(_reversed_part, re.split(r"^(?=diff --git |@@ )", patch, flags=re.MULTILINE)))


def _reversed_part(part: str) -> str:
    """A hunk, or what stands before the first one of a file."""
    if part.startswith("@@ "):
        part = re.sub(r"^@@ -(\S+) \+(\S+) @@", r"@@ -\2 +\1 @@", part)
        return re.sub(r"^[+-]", lambda sign: "-" if sign[0] == "+" else "+", part, flags=re.MULTILINE)
    for pattern, turned in _HEAD:
        part = re.sub(pattern, turned, part, flags=re.MULTILINE)
    made = re.sub(r"^new file mode", "\0", part, flags=re.MULTILINE)
    return re.sub(r"^deleted file mode", "new file mode", made, flags=re.MULTILINE).replace("\0", "deleted file mode")


_CONDA = "[ ! -f /opt/miniconda3/bin/activate ] || . /opt/miniconda3/bin/activate testbed\n"
_KEPT = ("instance_id", "repo", "org", "number", "version", "language", "difficulty", "created_at")
_HOME = "/home"
"""Where images of Multi-SWE have their repositories, and the patches and scripts that judge them."""
_OPTIONS = ("number", "number_interval", "tag")
_MULTI_SWE_FILES = ("fix.patch", "test.patch", "run.sh", "test-run.sh", "fix-run.sh", "prepare.sh")
_FAMILIES = {
    **{name: name for name in ("pytest", "unittest", "cargo", "tap")},
    **dict.fromkeys(("gotest", "go_test"), "go"),
    **dict.fromkeys(("jest", "vitest", "mocha"), "jest"),
}
Fields = dict[str, Any]
"""Fields of `SweProblem`, and with capital letters what else the row becomes: `IMAGE`, `WORKDIR`, `SETUP`."""


def swe_row(row: Row) -> Row:
    """The row with the columns that every taskset of ours knows; a `DatasetError` if its form is not known, or it lacks
    what its form needs."""
    if row.values.get("swe") is not None:
        return row
    fields = _form_of(row)(row)
    for name in ("archive", "bundle"):
        if text := text_of(row, name):
            fields[name] = text
    values: dict[str, Any] = {
        "question": fields.pop("QUESTION", None) or required_text(row, "problem_statement", "question"),
        "image": fields.pop("IMAGE", None),
        "workdir": text_of(row, "workdir") or fields.pop("WORKDIR", "/testbed"),
        "setup": fields.pop("SETUP", None) or row.cell("setup"),
        "id": identifier(row, "instance_id") or identifier(row, "id"),
        "answer": None,
    }
    fields.pop("WORKDIR", None)
    kept = {name: row.values[name] for name in _KEPT if name in row.values}
    limits = {name: row.values[name] for name in ("agent_timeout", "setup_timeout", "rating") if name in row.values}
    values["swe"] = _problem(row, fields)
    if not values["image"] and not (values["swe"].archive or values["swe"].bundle):
        row.refuse("image", "is missing: a task needs an image, or an archive or a bundle of its repository")
    other = {name: value for name, value in row.values.items() if name.startswith(("avg@", "pass@"))}
    return Row(row.origin, row.number, {**other, **kept, **limits, **values}, row.given)


def _problem(row: Row, fields: Fields) -> SweProblem:
    parser = fields.get("parser", "pytest")
    if parser not in PARSERS:
        try:
            missing = lacking(parser)
        except ValueError as error:
            row.refuse("parser", str(error))
        if missing:
            row.refuse("parser", f"is {parser}, whose package is not installed: {missing}")
    seconds = row.cell("test_timeout")
    given = {"timeout": seconds} if seconds is not None else {}
    try:
        return SweProblem.model_validate({**fields, **given})
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        row.refuse("swe", f"cannot be made of this row: {told}")


def _form_of(row: Row) -> Callable[[Row], Fields]:
    columns = {name for name, value in row.values.items() if value is not None}
    for form, needed, absent in _FORMS:
        if needed <= columns and not absent & columns:
            return form
    if {"test_patch", "version", "FAIL_TO_PASS"} <= columns:
        row.refuse(
            "eval_script",
            "is missing: rows of SWE-bench before release 5 are converted once with `uv run "
            "scripts/convert_swe_bench.py ROWS NEW_ROWS` (in the repository of opencode-env); those of repositories "
            "that `swebench` does not know (SWE-Gym has them) need columns image_name and test_cmd",
        )
    row.refuse(
        "swe", f"is missing, and the columns are those of no known dataset of this kind: {', '.join(sorted(columns))}"
    )


def _plain(row: Row, *image: str) -> Fields:
    """Return what most forms have under the same names; `image`: the columns that may name it."""
    return {
        **{name.lower(): names_of(row, name) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")},
        "IMAGE": text_of(row, *image),
        "base_commit": text_of(row, "base_commit") or None,
        "test_patch": text_of(row, "test_patch"),
        "gold_patch": text_of(row, "patch"),
    }


def _r2e(row: Row) -> Fields:
    expected = value_of(row, "expected_output_json")
    if not isinstance(expected, dict) or not expected or not all(isinstance(state, str) for state in expected.values()):
        row.refuse("expected_output_json", "must be a mapping from test to state")
    tests = text_of(row, "tests_at") or "/r2e_tests"
    return {
        "IMAGE": text_of(row, "docker_image"),
        "exact": {str(name): state for name, state in expected.items()},
        "command": text_of(row, "test_cmd") or "bash run_tests.sh",
        "parser": "pytest-names",
        "hidden": [tests, "/testbed/r2e_tests"],
        "test_copies": {"r2e_tests": tests},
        "gold_patch": text_of(row, "gold_patch", "patch") or parsed_patch(row, "parsed_commit_content"),
    }


def _swebench(row: Row) -> Fields:
    kind = text_of(row, "eval_type")
    if kind not in ("", "pass_and_fail", "fail_only"):
        row.refuse("eval_type", f'is {kind!r}, and neither "pass_and_fail" nor "fail_only"')
    parser = required_text(row, "log_parser")
    fields = _plain(row, "image", "image_name", "docker_image")
    if text_of(row, "image", "image_name"):
        # Images of SWE-bench have a commit of their own above the base commit.
        fields["base_commit"] = None
    return {
        **fields,
        "command": required_text(row, "eval_script"),
        "parser": parser if ":" in parser or parser in PARSERS else f"swebench:{parser}",
        "options": {"repo": text_of(row, "repo"), "version": text_of(row, "version")},
        "command_applies_tests": True,
        "skipped_is_kept": True,
        "fail_only": kind == "fail_only",
    }


def _openswe(row: Row) -> Fields:
    return {
        "IMAGE": text_of(row, "image_name", "image"),
        "command": required_text(row, "eval_script"),
        "parser": "exit-code",
        "fail_to_pass": [EXIT_TEST],
        "command_applies_tests": True,
        "base_commit": text_of(row, "base_commit") or None,
        "hidden": ["/eval.sh"],
        "gold_patch": text_of(row, "patch"),
    }


def _multi_swe(row: Row) -> Fields:
    org, repo = required_text(row, "org"), required_text(row, "repo")
    base: Any = value_of(row, "base") or {}
    if not isinstance(base, Mapping):
        row.refuse("base", "must be a table with the commit (sha)")
    asked = [f"{issue.get('title') or ''}\n\n{issue.get('body') or ''}".strip() for issue in _issues(row)]
    title = f"{text_of(row, 'title')}\n\n{text_of(row, 'body')}".strip()
    return {
        "QUESTION": text_of(row, "problem_statement") or "\n\n".join(filter(None, asked)) or title,
        "IMAGE": text_of(row, "docker_image", "image"),
        "WORKDIR": f"{_HOME}/{repo}",
        "base_commit": base.get("sha") or None,
        "command": text_of(row, "test_cmd") or f"bash {_HOME}/fix-run.sh",
        "parser": f"multi-swe:{org}/{repo}",
        "options": {name: row.values[name] for name in _OPTIONS if row.cell(name) is not None},
        "fail_to_pass": [test for name in ("f2p", "s2p", "n2p") for test in _tests_of(row, f"{name}_tests")],
        "pass_to_pass": _tests_of(row, "p2p_tests"),
        "test_patch": text_of(row, "test_patch"),
        "command_applies_tests": True,
        "patch_file": text_of(row, "patch_file") or f"{_HOME}/fix.patch",
        "hidden": [f"{_HOME}/{name}" for name in _MULTI_SWE_FILES],
        "gold_patch": text_of(row, "fix_patch"),
    }


def _issues(row: Row) -> list[Mapping[str, Any]]:
    """The issues that are asked about: a list of tables, or a table of lists."""
    found: Any = value_of(row, "resolved_issues") or []
    try:
        if isinstance(found, Mapping):
            found = [dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)]
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, list) or not all(isinstance(issue, Mapping) for issue in found):
        row.refuse("resolved_issues", "must be a list of tables with title and body")
    return found


def _tests_of(row: Row, name: str) -> list[str]:
    """The names of a table of tests: columns, or one entry for each."""
    found = value_of(row, name) or {}
    if not isinstance(found, Mapping):
        row.refuse(name, "must be a table of tests")
    return list(found["name"]) if isinstance(found.get("name"), list) else [str(test) for test in found]


def _swesmith(row: Row) -> Fields:
    name = required_text(row, "instance_id")
    branch = f"{'refs/bundle/heads/' if text_of(row, 'bundle') else ''}{shlex.quote(name)}"
    removed = 'case "$(git log -1 --format=%s)" in *"Remove F2P Tests"*) git checkout -q HEAD~1;; esac'
    try:
        command = text_of(row, "test_cmd") or command_elsewhere(row.values)
    except ValueError as error:
        row.refuse("test_cmd", f"is missing: {error}")
    return {
        **_plain(row, "image_name", "image"),
        "SETUP": [f"git checkout -q {branch} && {removed}"],
        "command": command,
        "parser": f"swesmith:{name.rsplit('.', 1)[0]}",
        "base_commit": None,
        "test_patch": "",
        "gold_patch": reversed_patch(text_of(row, "patch")),
    }


def _rebench(row: Row) -> Fields:
    config: Any = value_of(row, "install_config")
    named = config.get("test_cmd") if isinstance(config, Mapping) else None
    listed = named if isinstance(named, list | tuple) else [named]
    if not listed or not all(isinstance(command, str) for command in listed):
        row.refuse("install_config", "must name test_cmd: a command, or a list of commands")
    return {
        **_plain(row, "image_name", "docker_image"),
        "WORKDIR": f"/{required_text(row, 'repo').rsplit('/', 1)[-1]}",
        "command": "FAIL=0\n" + "".join(f"{command} || FAIL=1\n" for command in listed) + "exit $FAIL\n",
        "parser": _known_parser(row, str(config.get("log_parser") or "")),
    }


def _known_parser(row: Row, name: str) -> str:
    """Our parser of that kind of log; those of SWE-rebench itself are in no package."""
    plain = re.sub(r"^parse_log_|_(?:v\d+|options|verbose)$", "", name)
    if plain in _FAMILIES:
        return _FAMILIES[plain]
    return f"swebench:{name}" if name else row.refuse("install_config", "must name log_parser")


def _swelego(row: Row) -> Fields:
    return {**_plain(row, "image_name", "docker_image"), "command": _CONDA + required_text(row, "test_cmd")}


def _scaleswe(row: Row) -> Fields:
    setup, fields = commands(row, "pre_commands"), _plain(row, "image_url", "image_name")
    files = {"test_fail_to_pass.py": script} if (script := text_of(row, "f2p_script")) else {}
    tests = shlex.join([*fields["fail_to_pass"], *fields["pass_to_pass"]])
    return {
        **fields,
        "SETUP": setup or None,
        "base_commit": None if setup else text_of(row, "parent_commit", "base_commit") or None,
        "command": text_of(row, "test_cmd") or f"python -m pytest -rA -o addopts= {tests}",
        "test_patch": text_of(row, "f2p_patch"),
        "test_files": files,
    }


_FORMS: tuple[tuple[Callable[[Row], Fields], set[str], set[str]], ...] = (
    (_r2e, {"expected_output_json"}, set()),
    (_multi_swe, {"fix_patch", "org", "number"}, set()),
    (_swebench, {"eval_script", "log_parser", "FAIL_TO_PASS"}, set()),
    (_openswe, {"eval_script"}, {"FAIL_TO_PASS"}),
    (_rebench, {"install_config", "FAIL_TO_PASS"}, set()),
    (_scaleswe, {"f2p_patch", "FAIL_TO_PASS"}, set()),
    (_scaleswe, {"f2p_script", "FAIL_TO_PASS"}, set()),
    (_swelego, {"test_cmd", "test_patch", "FAIL_TO_PASS"}, set()),
    (_swesmith, {"instance_id", "FAIL_TO_PASS", "patch"}, {"test_patch", "version"}),
)
"""Each form with the columns that tell it, and those that it has not."""
