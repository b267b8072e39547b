"""Reads logs with the parsers of `swebench`, `swesmith` and `multi-swe-bench`, in a process of its own.

Invariant: a log is an agent's to write, and these parsers are made of regular expressions: one that does not end is
ended, and costs nobody else's time. These packages are extras (`opencode-rubrics[swe]`, `[multi-swe]`); without the one
that a row needs, its log cannot be read, which is an error.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Mapping

from pydantic import JsonValue

from opencode_rubrics.errors import ScoringError

PACKAGES = {"swebench": "swebench", "swesmith": "swesmith", "multi-swe": "multi_swe_bench"}
"""Importable name by the family that stands before the colon of a parser's name."""
EXTRAS = {"swebench": "swe", "swesmith": "swe", "multi-swe": "multi-swe"}

_PROGRAM = "opencode_rubrics.swe.foreign_program"
_SECONDS = 180.0


def lacking(parser: str) -> str:
    """What to install for a parser; empty if it is there.

    Raises:
        ValueError: there is no such family.
    """
    family, _, name = parser.partition(":")
    if family not in PACKAGES or not name:
        raise ValueError(f'there is no parser "{parser}"')
    if importlib.util.find_spec(PACKAGES[family]) is None:
        return f'pip install "opencode-rubrics[{EXTRAS[family]}]"'
    return ""


async def parse_elsewhere(parser: str, options: Mapping[str, JsonValue], log: str) -> dict[str, str]:
    """The status of each test in a log.

    Raises:
        ScoringError: the package is not there, or has no such parser.
    """
    if missing := lacking(parser):
        raise ScoringError(f"logs of this task are read by {parser!r}, which is not installed: {missing}")
    asked = json.dumps({"parser": parser, "options": dict(options), "log": log}).encode(errors="replace")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, err = await process.communicate(asked)
    except TimeoutError:
        return {}  # the same parser reads an untouched sandbox's log in time, or that is an error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        raise ScoringError(f"the parser {parser!r} failed: {err.decode(errors='replace').strip()[-500:]}")
    found: dict[str, str] = json.loads(out.splitlines()[-1])
    return found
