"""Reads what a suite printed: the status of each test by its name.

Invariant: the standard library alone, of any Python from 3.7 on, and no import of ours: this file also travels into the
Harbor folders that are written from rows, where it reads the log in the sandbox.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import partial
from itertools import accumulate
from typing import Callable, Iterator, Mapping, Sequence  # noqa: UP035 - of Python 3.7, too

PASSED, FAILED, ERROR, SKIPPED, XFAIL, XPASS = "PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS"
GOOD = (PASSED, XFAIL)
BAD = (FAILED, ERROR)
EXIT_TEST = "exit code 0"
"""The one test of a suite that is judged by its exit code."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STATUSES = (ERROR, FAILED, PASSED, SKIPPED, XFAIL, XPASS)
_STATES = "|".join(STATUSES)
_SUMMARY = re.compile(r"^(" + _STATES + r") (\S.*)$")
_TOLD = re.compile(r" (" + _STATES + r")(?= \(|$)")
_WORKER = re.compile(r"^\[gw\d+\] (?:\[ *\d+%\] )?(" + _STATES + r") (\S.*)$")
_UNITTEST = re.compile(
    r"^(\w+) \(([\w.<>]+)\)(?:\n[^\n]*?)?? \.\.\. (ok|FAIL|ERROR|skipped|expected failure|unexpected success)\b", re.M
)
_GO = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)")
_CARGO = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)\b")
_JEST = re.compile(
    r"^\s*([\u2713\u2714\u221a]|[\u2715\u2717\u2718\u00d7]|\u25cb) (?:skipped )?(.*?)(?: \(\d+(?:\.\d+)? ?m?s\))?$"
)
_TICKS = {**dict.fromkeys("\u2713\u2714\u221a", PASSED), "\u25cb": SKIPPED}
_TAP = re.compile(r"^\s*(not )?ok \d+(?: -)? (.*?)(?: # (SKIP|TODO).*)?$", re.I)
_WORDS = {
    "ok": PASSED,
    "PASS": PASSED,
    "FAIL": FAILED,
    "FAILED": FAILED,
    "ERROR": ERROR,
    "SKIP": SKIPPED,
    "skipped": SKIPPED,
    "ignored": SKIPPED,
    "expected failure": XFAIL,
    "unexpected success": FAILED,
}


def _lines(log: str) -> Iterator[str]:
    return filter(None, (line.rstrip() for line in _ANSI.sub("", log).split("\n")))


def _worse(found: dict[str, str], name: str, status: str) -> None:
    """A name that was told twice has the worse of its states."""
    if found.get(name) not in BAD:
        found[name] = status


def pytest(log: str) -> dict[str, str]:
    """The summary of `-rA`, else the lines of `-v`, also those of xdist."""
    found: dict[str, str] = {}
    told: dict[str, str] = {}
    for line in _lines(log):
        summary = _SUMMARY.match(line) or _WORKER.match(line)
        if summary:
            name = summary.group(2)
            # The reason stands behind the name; names of parameters may hold " - " too.
            head, dash, _ = name.partition(" - ")
            if dash and head.count("[") == head.count("]"):
                name = head
            if not re.match(r"\[\d+\] ", name):
                _worse(found, name, summary.group(1))
            continue
        verbose = _verbose(line)
        if verbose:
            _worse(told, *verbose)
    for name, status in told.items():
        found.setdefault(name, status)
    return found


def _verbose(line: str) -> tuple[str, str] | None:
    """Name and status of a line of `-v`: `NAME STATUS (REASON) [ 50%]`, by the first status that ends it so."""
    first = line.split(None, 1)[:1]
    colons = -1 if line[:1].isspace() or not first else first[0].find("::", 1)
    if colons < 0:
        return None
    if line.endswith("%]"):
        start = line.rfind("[")
        if line[start + 1 : -2].lstrip(" ").isdecimal() and line[start - 1].isspace():
            line = line[:start].rstrip()
    for match in _TOLD.finditer(line, colons + 2):
        if match.end() == len(line) or line.endswith(")"):
            return line[: match.start()], match.group(1)
    return None


def pytest_names(log: str) -> dict[str, str]:
    """Read as `pytest` does, without files, and with dots: `Class.test`."""
    return {short_name(name): status for name, status in pytest(log).items()}


def short_name(name: str) -> str:
    """A node id without its file, with dots."""
    return ".".join(name.split("::")[1:]) if "::" in name else name


def unittest(log: str) -> dict[str, str]:
    """`python -m unittest -v` and Django's own runner."""
    found: dict[str, str] = {}
    for name, place, word in _UNITTEST.findall(_ANSI.sub("", log)):
        where = place[: -len(name) - 1] if place.endswith("." + name) else place
        _worse(found, f"{name} ({where})", _WORDS[word])
    return found


def _by_lines(pattern: re.Pattern[str], name: int, status: Callable[[re.Match[str]], str], log: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in filter(None, map(pattern.match, _lines(log))):
        _worse(found, match.group(name), status(match))
    return found


PARSERS: dict[str, Callable[[str], dict[str, str]]] = {
    "pytest": pytest,
    "pytest-names": pytest_names,
    "unittest": unittest,
    "go": partial(_by_lines, _GO, 2, lambda match: _WORDS[match.group(1)]),  # `go test -v`
    "cargo": partial(_by_lines, _CARGO, 1, lambda match: _WORDS[match.group(2)]),  # `cargo test`
    # jest, vitest and mocha with a verbose reporter
    "jest": partial(_by_lines, _JEST, 2, lambda match: _TICKS.get(match.group(1), FAILED)),
    # the Test Anything Protocol
    "tap": partial(_by_lines, _TAP, 2, lambda m: SKIPPED if m.group(3) else FAILED if m.group(1) else PASSED),
    "exit-code": lambda log: {},
}
"""By name; `exit-code` reads no log."""


class StatusByName:
    """The status of tests by names that may be cut."""

    def __init__(self, found: Mapping[str, str]) -> None:
        self._found = found
        self._names: list[str] | None = None

    def __call__(self, wanted: str) -> str | None:
        """The status of a test, or None; a name that was cut in the middle of its parameters stands for all that begin
        so, if they agree (676 of SWE-bench Verified are cut)."""
        if wanted in self._found:
            return self._found[wanted]
        if wanted.count("[") <= wanted.count("]"):
            return None
        if self._names is None:
            self._names = sorted(self._found)
            states = [self._found[name] if self._found[name] in STATUSES else FAILED for name in self._names]
            # How often each status was there before each name: what begins so stands together.
            self._before = {kind: [0, *accumulate(state == kind for state in states)] for kind in STATUSES}
        first, end = bisect_left(self._names, wanted), bisect_left(self._names, wanted + chr(0x10FFFF))
        states = [kind for kind, count in self._before.items() if count[end] > count[first]]
        agree = all(state in GOOD for state in states) or not any(state in GOOD for state in states)
        return states[0] if states and agree else None


def decided(
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    exact: Mapping[str, str],
    skipped_is_kept: bool,
    found: Mapping[str, str],
    fail_only: bool = False,
) -> tuple[int, int, bool]:
    """Return how many of the tests that must pass do, and of those that must still pass, and whether it is solved. With
    `fail_only` the log tells failures alone, so that a test it does not tell has passed."""
    if exact:
        return sum(found.get(name) == status for name, status in exact.items()), 0, found == dict(exact)
    if fail_only:
        fixed, still = (sum(found.get(test) not in BAD for test in tests) for tests in (fail_to_pass, pass_to_pass))
        return fixed, still, fixed == len(fail_to_pass) and still == len(pass_to_pass)
    kept, named = GOOD + ((SKIPPED,) if skipped_is_kept else ()), StatusByName(found)
    fixed = sum(named(test) in GOOD for test in fail_to_pass)
    still = sum(named(test) in kept for test in pass_to_pass)
    return fixed, still, fixed == len(fail_to_pass) and still == len(pass_to_pass)
