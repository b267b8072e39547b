"""Where a run of the suite spent its time: CPU and waiting by directory, and what was started by kind.

`--costs=FILE` also prints the dearest files and saves the figures of every test as JSON:
`{"tests": {id: {...}}, "starts": {kind: number}}`.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked import Forked
from tests.support.tiers import programs_of

_PROPERTY = "costs"
_SCANS_PER_SECOND = 5
_LOOKS = 10
_DEAREST_FILES = 25
_TOLD_FROM = 30.0
"""Seconds that a run takes before its table is worth reading."""
_PROGRAMS = {"vf-eval": "vf-eval", "opencode": "OpenCode", "opencode.exe": "OpenCode", "conmon": "containers"}
"""Kind by the name of a process, of those that live long enough to be seen."""

_started: set[str] = set()
_watching = False


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        _started.update(programs_of(arguments))


def cpu_seconds() -> float:
    """CPU of this process and of the programs whose end it has seen."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + Forked.cpu_seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Begin to measure one test."""
    global _watching
    if not _watching:
        _watching = True
        sys.addaudithook(_note)
    _started.clear()
    item.stash[_BEGUN] = (time.monotonic(), cpu_seconds())
    return (yield)


_BEGUN = pytest.StashKey[tuple[float, float]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hand the figures of a test on with its last report, from a worker as well."""
    if call.when == "teardown":
        wall, cpu = item.stash[_BEGUN]
        spent = {"wall": time.monotonic() - wall, "cpu": cpu_seconds() - cpu, "started": sorted(_started)}
        item.user_properties.append((_PROPERTY, spent))
    return (yield)


class Costs:
    """The figures of a whole run, gathered where the reports arrive."""

    def __init__(self, save: str | None) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.starts: Counter[str] = Counter()
        self._save = save
        self._looks: dict[str, int] = {}
        self._containers: set[bytes] = set()
        self._ended = threading.Event()
        self._scan(count=False)
        self._scanner = threading.Thread(target=self._watch, daemon=True)
        self._scanner.start()
        self._begun = time.monotonic()

    def _watch(self) -> None:
        while not self._ended.wait(1 / _SCANS_PER_SECOND):
            self._scan()

    def _scan(self, count: bool = True) -> None:
        """Count the processes that were not there before; after a few looks one has become what it will be."""
        looks = {pid: self._looks.get(pid, 0) + 1 for pid in filter(str.isdigit, os.listdir("/proc"))}
        for pid in [pid for pid, number in looks.items() if number <= _LOOKS]:
            with contextlib.suppress(OSError):
                name = Path("/proc", pid, "comm").read_text(errors="replace").rstrip("\n")
                if name in _PROGRAMS:
                    looks[pid] = _LOOKS
                    # A container has a monitor that forks, and one more for each command.
                    line = Path("/proc", pid, "cmdline").read_bytes() if name == "conmon" else b""
                    container = line.partition(b"\0-c\0")[2].partition(b"\0")[0]
                    self.starts[_PROGRAMS[name]] += count and container not in self._containers
                    self._containers.update({container} - {b""})
        self._looks = looks

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the figures of a finished test."""
        for name, spent in report.user_properties:
            if name == _PROPERTY and report.when == "teardown":
                self.tests[report.nodeid] = dict(spent)  # type: ignore[call-overload]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the time went."""
        self._ended.set()
        self._scanner.join()
        wall = time.monotonic() - self._begun
        if self._save:
            Path(self._save).write_text(json.dumps({"tests": self.tests, "starts": self.starts}))
        if wall < _TOLD_FROM:
            return
        directories: defaultdict[str, Counter[str]] = defaultdict(Counter)
        files: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for test, spent in self.tests.items():
            file = test.partition("::")[0]
            row = Counter({"tests": 1, "cpu": spent["cpu"], "waits": max(0.0, spent["wall"] - spent["cpu"])})
            directories["/".join(Path(file).parts[:2])] += row
            files[file] += row
        total = sum(directories.values(), Counter[str]())
        terminalreporter.section("where the time went")
        terminalreporter.write_line(f"{'':28} {'tests':>6} {'CPU s':>8} {'waited s':>9}")
        for rows, shown in ((files, _DEAREST_FILES if self._save else 0), (directories, len(directories))):
            for place, row in sorted(rows.items(), key=lambda one: -one[1]["cpu"])[:shown]:
                terminalreporter.write_line(f"{place:28} {row['tests']:6} {row['cpu']:8.0f} {row['waits']:9.0f}")
        kinds = ", ".join(f"{kind} {self.starts[kind]}" for kind in dict.fromkeys(_PROGRAMS.values()))
        terminalreporter.write_line(
            f"{'all':28} {total['tests']:6} {total['cpu']:8.0f} {total['waits']:9.0f} in {wall:.0f} s; started: {kinds}"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that saves the figures."""
    parser.addoption("--costs", metavar="FILE", help="save CPU and waiting of every test as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Gather where the reports of all workers arrive."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs(config.getoption("--costs")), "costs of the run")
