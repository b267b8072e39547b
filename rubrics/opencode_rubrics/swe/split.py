"""What an agent changed, told apart: its solution, and what decides how the suite runs.

Invariant: a path that the row itself names as a test, or that a runner or Python reads by its name, never reaches the
sandbox in which the suite runs; each is reported. A path that the gold patch changes is the solution, unless the row
says its content.
"""

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypedDict

from opencode_rubrics.swe.file_tree import FileContent, Tree, parents

_TEST_FOLDERS = {"tests", "test", "__tests__", "testdata", "spec"}
_TEST_NAME = re.compile(
    r"conftest\.py|test_.*\.py|.*_tests?\.py|tests?\.py|.*_test\.(?:go|cc|cpp|c|rb|exs|dart|ts|js)|.*_spec\.rb"
    r"|.*\.(?:test|spec|e2e)\.[cm]?[jt]sx?|(?:Test.*|.*Tests?|.*TestCase|.*IT)\.(?:java|kt|scala|cs|php|groovy)"
)
_CONFIGURATION = re.compile(
    r"\.?pytest\.(?:ini|toml)|\.coveragerc|(?:jest|vitest|karma|playwright|cypress|ava|wdio)\.(?:config|conf)\.\w+"
    r"|\.(?:mocharc|nycrc|jestrc)(?:\..*)?|noxfile\.py|phpunit\.xml(?:\.dist)?|\.rspec|runtests\.\w+|nextest\.toml"
)
_START_UP = re.compile(r"(?:site|user)customize\.py|.*\.pth|pyvenv\.cfg|.*\.egg-link|\.python-version|\.envrc")
_METADATA = re.compile(r".*\.(?:egg|dist)-info")
"""Where a package says its entry points, which pytest loads plugins by."""
_SHADOWING = {"pytest", "_pytest", "pluggy", "iniconfig", "unittest", "py", "nose", "xdist", "pytest_timeout"}
_MODULE = re.compile(r"\.(?:py|pyc|pyd|so)$")
_SHADOWING |= sys.stdlib_module_names
"""Modules of the runner and of Python, which a new file of the work directory would stand before."""
_ENVIRONMENT = {"__pycache__", "site-packages", "dist-packages", "node_modules", ".venv", ".tox", ".nox", ".eggs"}
_CACHES = {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".cache", "htmlcov"}
_PROGRAMS = {"pytest", "py.test", "python", "python3", "tox", "nox", "coverage", "git", "sh", "bash"}
"""Names of programs that an installed script would stand before."""
_SECTIONS = re.compile(r"(?:tool:)?pytest|testenv.*|tox|coverage:.*|aliases|nosetests|unittest|options\.entry_points")
_HEADER = re.compile(r"\[[^\[\]]+\]\s*(?:[#;].*)?")
_ODD_BREAK = re.compile("[\x0b\x0c\r\x1c-\x1e\x85\u2028\u2029]")
"""What ends a line for some of the parsers alone."""
_MAX_SETTINGS = 1 << 20
"""Characters of a file of settings; a larger one is compared whole."""
_MAX_DOTS = 100

_SIGNS = {
    "pytest": re.compile(rb"\b_?pytest\b|\bpluggy\b|\bunittest\b|hookimpl|pytest_\w+|TestReport|nodeid|SUITE_RECORD"),
    "exits": re.compile(
        rb"\b_?exit\s*\(|SystemExit|atexit|os\.kill|\babort\s*\(|process\.exit|System\.exit|runtime\.Goexit"
    ),
    "imports": re.compile(
        rb"sys\.(?:modules|meta_path|path|settrace|setprofile|_getframe)|importlib|__import__|builtins|gc\.get_|f_back"
        rb"|\bpickle\b|\brunpy\b|\bcompile\s*\(|__builtins__|\binspect\.|ctypes|\beval\s*\(|\bexec\s*\(|marshal|__subclasses__|__class__\s*="
    ),
    "obscured": re.compile(
        rb"__dict__|\bvars\s*\(|\bglobals\s*\(|fromhex|b64decode|\bcodecs\b|\bchr\s*\(|[sg]etattr\s{0,9}\([^,)]{0,200},\s{0,9}[^'\",)\s]"
    ),
    "reads": re.compile(rb"\bopen\s*\(|read_(?:text|bytes)|\bglob\b|os\.(?:walk|listdir|scandir)|linecache|test_\w"),
    "processes": re.compile(rb"\bsubprocess\b|\bmultiprocessing\b|\bthreading\b|\b_thread\b|\bmmap\b"),
    "results": re.compile(
        rb"/proc/|PASSED|\bFAILED\b|\.\.\. ok|--- PASS|EXIT_CODE|\b__eq__\b|\bstdout\b|\bstderr\b"
        rb"|os\.(?:dup|write|fork)"
    ),
}
_INSTALLS = re.compile(r"(?:.*/)?(?:setup\.py|setup\.cfg|pyproject\.toml|hatch_build\.py|build\.rs|binding\.gyp)")
_MAX_BYTES = 4 << 20


class RowPaths(TypedDict):
    """Holds what a row says of paths."""

    named: list[str]
    """Paths whose content the row says, and those of its tests."""
    gold: list[str]
    """Paths that its gold patch changes."""
    command: str


class PathSplitter:
    """Tells for one row and its untouched tree what a path is."""

    def __init__(self, row: RowPaths, before: Tree, after: Tree) -> None:
        self._named, self._gold, self._after = {*row["named"]}, {*row["gold"]}, after
        self._before = {*before, *(parent for path in before for parent in parents(path))}
        self._command = {word.removeprefix("./") for word in re.findall(r"[\w./-]+", row["command"])} & before.keys()
        if re.search(r"\b(?:make|gmake)\b", row["command"]):
            self._command |= {"Makefile", "makefile", "GNUmakefile"}
        configured = {PurePosixPath(path) for path in (*before, *after) if path.endswith("pyvenv.cfg")}
        self._environments = {str(path.parent) for path in configured if str(path.parent) != "."}

    def kind(self, path: str) -> str:
        """`solution`, `test` or `environment`, by the path alone."""
        parts, name = path.split("/"), path.rpartition("/")[2]
        places = {path, *parents(path)}
        if {*_ENVIRONMENT, *_CACHES} & set(parts) or self._environments & places:
            return "environment"
        if path in self._command or self._named & places:
            return "test"
        if path in self._gold:
            return "solution"
        if _TEST_FOLDERS & set(parts) or _TEST_NAME.fullmatch(name) or _CONFIGURATION.fullmatch(name):
            return "test"
        if _START_UP.fullmatch(name) or any(map(_METADATA.fullmatch, parts)) or self._shadows(parts):
            return "environment"
        return "solution"

    def _shadows(self, parts: list[str]) -> bool:
        """Whether a new file or directory at the top, or at the top of `src` or `lib`, has the name of the runner's."""
        inner = parts[1:] if parts[0] in ("src", "lib") and len(parts) > 1 else parts
        top = "/".join(parts[: len(parts) - len(inner) + 1])
        if inner[0].partition(".")[0] not in _SHADOWING:
            return False
        # A directory that is not a package of Python's stands before nothing.
        module = _MODULE.search(top) or f"{top}/__init__.py" in self._after or f"{top}/__init__.pyc" in self._after
        return bool(module) and top not in self._before


def split_paths(splitter: PathSplitter, paths: Iterable[str]) -> dict[str, list[str]]:
    """The paths by what they are."""
    found: dict[str, list[str]] = {"solution": [], "test": [], "environment": []}
    for path in paths:
        found[splitter.kind(path)].append(path)
    return found


def configures_tests(path: str, before: FileContent | None, after: FileContent | None) -> bool:
    """Whether another content of this file changes how tests run: a part of it that a runner reads differs."""
    read = _READERS.get(path.rpartition("/")[2])
    return read is not None and read(_text(before)) != read(_text(after))


def _text(file: FileContent | None) -> str:
    return "" if file is None else file.content.decode(errors="replace")


def _of_toml(text: str) -> Any:
    # The parser walks a dotted key once for each of its parts.
    if len(text) > _MAX_SETTINGS or any(line.count(".") > _MAX_DOTS for line in text.split("\n")):
        return text
    try:
        found = tomllib.loads(text)
        tools, project = found.get("tool", {}), found.get("project", {})
        names = ("pytest", "tox", "coverage", "nox", "hatch", "pdm", "poe", "taskipy")
        read = {name: tools[name] for name in names if name in tools}
        places = project.get("entry-points", {}), tools.get("poetry", {}).get("plugins", {})
        plugins = [table.get("pytest11") for table in places]
        scripts = {name: script for name, script in project.get("scripts", {}).items() if name in _PROGRAMS}
        return read, plugins, scripts
    except (ValueError, RecursionError, AttributeError, TypeError):
        return text


def _of_ini(text: str) -> Any:
    """The lines of the sections that a runner reads. Where its parsers do not agree what a section is, all of it."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        told = line.strip()
        if _ODD_BREAK.search(line) or (told.startswith("[") and not _HEADER.fullmatch(line)):
            return text
        if told.startswith("["):
            section = []
            name = told[1 : told.index("]")]
            if name == "DEFAULT" or _SECTIONS.fullmatch(name):
                section = found.setdefault(name, section)
        elif told and told[0] not in "#;":
            section.append(line.rstrip())
    return found


def _of_package(text: str) -> Any:
    if len(text) > _MAX_SETTINGS:
        return text
    try:
        package: Mapping[str, Any] = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    names = ("scripts", "jest", "mocha", "ava", "nyc", "vitest", "c8", "tap")
    return {name: package[name] for name in names if name in package} if isinstance(package, dict) else text


_READERS = {"pyproject.toml": _of_toml, "setup.cfg": _of_ini, "tox.ini": _of_ini, "package.json": _of_package}


def signs_of(before: Mapping[str, FileContent], after: Mapping[str, FileContent]) -> list[str]:
    """Return what the added lines of a change touch of what judges it, as `kind: path`, at most 50: a metric, and no
    verdict, as honest patches touch these, too. It shows where the one hole is used that no grader closes: tests import
    the agent's code into their own process."""
    found = []
    for path, file in sorted(after.items()):
        old = before[path].content if path in before else b""
        # Lines, without their order: to find out what was moved would take longer than an agent may make it take.
        known = Counter(old[:_MAX_BYTES].splitlines())
        added = []
        for line in file.content[:_MAX_BYTES].splitlines():
            known[line] -= 1
            if known[line] < 0:
                added.append(line)
        text = b"\n".join(added)
        found += [f"{kind}: {path}" for kind, pattern in _SIGNS.items() if pattern.search(text)]
        kinds = {
            "binary": b"\0" in file.content[:8192],
            "large": len(file.content) > _MAX_BYTES,
            "installs": _INSTALLS.fullmatch(path) is not None,
        }
        found += [f"{kind}: {path}" for kind, holds in kinds.items() if holds]
    return found[:50]
