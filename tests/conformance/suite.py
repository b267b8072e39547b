"""Runs the suite as a plugin author does, outside the repository, and reads its report."""

import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import finished, own_variables

ROOT = Path(__file__).parents[2]
PLUGINS = Path(__file__).parent / "plugins"


@dataclass(frozen=True)
class Report:
    """What became of every promise."""

    exit_code: int
    output: str
    passed: frozenset[str]
    skipped: frozenset[str]
    failed: dict[str, str]
    """Message by name."""

    def failure(self, name: str) -> str:
        """The message of a promise that was found broken."""
        assert name in self.failed, f"{name} is not among the failures\n{self.output}"
        return self.failed[name]


def conformance(directory: Path, *arguments: str, plugins: Sequence[Path] = (PLUGINS,)) -> Report:
    """One run of the suite in `directory`, with plugins that are not installed on PYTHONPATH."""
    report = directory / "report.xml"
    argv = [sys.executable, "-m", "opencode_env.conformance", *arguments, f"--junit-xml={report}"]
    argv += ["--basetemp", str(directory / "runs"), "-p", "tests.support.programs"]
    env = own_variables(PYTHONPATH=os.pathsep.join(map(str, [*plugins, ROOT])))
    done = finished(argv, directory, env, timeout=1200)
    assert report.exists(), done.stdout + done.stderr
    cases = {case.attrib["name"]: case for case in ET.parse(report).iter("testcase")}
    failed = {name: message for name, case in cases.items() if (message := _problem(case))}
    skipped = frozenset(name for name, case in cases.items() if case.find("skipped") is not None)
    passed = frozenset(cases) - skipped - frozenset(failed)
    return Report(done.returncode, done.stdout + done.stderr, passed, skipped, failed)


def _problem(case: ET.Element) -> str:
    """Why a test failed or could not be run; empty when it did neither."""
    found = [*case.findall("failure"), *case.findall("error")]
    return "\n".join(f"{problem.attrib.get('message', '')}\n{problem.text or ''}" for problem in found)
