"""Parsers of `swebench`, `swesmith` and `multi-swe-bench`, which read logs in a process of their own.

Invariant: a log is an agent's to write, and a regular expression that does not end costs nobody else's time. The
parsers may stand in places of their own: swesmith 0.0.9 needs swebench 4, whose parsers are older than those of 5.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import JsonValue
from rollout_sandbox.errors import ScoringError

PACKAGES = {"swebench": "swebench", "swesmith": "swesmith", "multi-swe": "multi_swe_bench"}
"""Importable name by the family that stands before the colon of a parser's name."""
INSTALLED = {
    "swebench": 'pip install "opencode-rubrics[swe]"',
    "swesmith": "make an environment with swesmith==0.0.9 swebench==4.1.0 docker python-dotenv ghapi unidiff",
    "multi-swe": 'pip install "opencode-rubrics[multi-swe]"',
}

_PROGRAM = Path(__file__).with_name("foreign_program.py")
_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH")
"""What such a process gets of this one's."""


def lacking(parser: str) -> str:
    """Return what to install for a parser; empty if it is there. A `ValueError` if there is no such family."""
    family, _, name = parser.partition(":")
    if family not in PACKAGES or not name:
        raise ValueError(f'there is no parser "{parser}"')
    if python_of(family) == sys.executable and importlib.util.find_spec(PACKAGES[family]) is None:
        return f"{INSTALLED[family]}, or name the Python that has it in {variable_of(family)}"
    return ""


def variable_of(family: str) -> str:
    """The variable that names the Python of a family."""
    return f"OPENCODE_{PACKAGES[family].upper()}_PYTHON"


def python_of(family: str) -> str:
    return os.environ.get(variable_of(family)) or sys.executable


@cache
def _profiles(python: str) -> subprocess.Popen[str]:
    """The one process that answers for swesmith's profiles, which take seconds to be imported; it ends with ours."""
    return subprocess.Popen([python, str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def command_elsewhere(row: Mapping[str, object]) -> str:
    """The command by which swesmith's profiles test a row; a `ValueError` if they cannot say it."""
    if missing := lacking("swesmith:any"):
        raise ValueError(f"swesmith, whose profiles know it, is not installed: {missing}")
    process = _profiles(python_of("swesmith"))
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps({"row": dict(row)}, default=str) + "\n")
        process.stdin.flush()
    answer = json.loads(process.stdout.readline() or '{"error": "its process has ended"}')
    if "error" in answer:
        raise ValueError(f"swesmith cannot say it: {answer['error']}")
    return str(answer["command"])


def foreign_of(parser: str, options: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return how `reading_process` asks a parser of another package; a `ScoringError` if the package is not there."""
    if missing := lacking(parser):
        raise ScoringError(f"logs of this task are read by {parser!r}, which is not installed: {missing}")
    return {
        "argv": [python_of(parser.partition(":")[0]), str(_PROGRAM)],
        "asked": {"parser": parser, "options": dict(options)},
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }
