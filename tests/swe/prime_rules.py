"""The verdict of Prime's removed environments on a suite's log, by their published rules: what ours is held against.

For honest work alone: these rules believe whatever a log says.
"""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S.*?)(?: - .*)?$", re.MULTILINE)

Row = Mapping[str, Any]


def _states(log: str) -> dict[str, str]:
    return {name: status for status, name in _LINE.findall(log)}


def _wanted(row: Row) -> list[str]:
    cells = (row[name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    return [test for cell in cells for test in (json.loads(cell) if isinstance(cell, str) else cell)]


def _all_passed(row: Row, log: str) -> bool:
    found = _states(log)
    return all(found.get(test) == "PASSED" for test in _wanted(row))


def _equal(row: Row, log: str) -> bool:
    found = {".".join(name.split("::")[1:]): status for name, status in _states(log).items()}
    expected: dict[str, str] = json.loads(row["expected_output_json"])
    return found == expected


def _first_exit_code(row: Row, log: str) -> bool:
    found = re.search(r"OPENSWE_EXIT_CODE\S*=(\d+)", log)
    return found is not None and found[1] == "0"


def _junit(row: Row, log: str) -> bool:
    document = ElementTree.fromstring(log[log.index("<?xml") : log.index("</testsuites>") + 13])
    passed = {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in document.iter("testcase")
        if not any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
    }
    return _none_missing(passed, _wanted(row))


def _none_missing(passed: Iterable[str], wanted: Iterable[str]) -> bool:
    """A class of tests stands in JUnit's name of the module."""
    known = {name.replace(".py::", "/").replace("::", "/") for name in passed}
    return {name.replace(".py::", "/").replace("::", "/") for name in wanted} <= known


_RULES: dict[str, Callable[[Row, str], bool]] = {"r2e": _equal, "openswe": _first_exit_code, "scaleswe": _junit}


def prime_verdict(form: str, row: Row, log: str) -> float:
    """1.0 or 0.0."""
    return float(_RULES.get(form, _all_passed)(row, log))
