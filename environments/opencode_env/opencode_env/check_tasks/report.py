"""What the check of one task found, and the reports of all: a file that grows by a line for each task, so that a check
can be ended and resumed."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ValidationError

Kind = Literal[
    "untouched-passes",
    "gold-fails",
    "near-miss-passes",
    "flaky",
    "order-dependent",
    "leak",
    "limits",
    "no-gold",
    "not-looked-at",
    "broken",
]
"""`broken`: its setup or scoring is an error. `not-looked-at`: something of the sandbox could not be searched."""


class Finding(BaseModel, frozen=True):
    """One thing that is wrong with a task."""

    kind: Kind
    told: str


class Report(BaseModel, frozen=True):
    """One task."""

    key: str
    """The task's identity."""
    hash: str
    """Of its content: a changed task is checked again."""
    options: str
    """Of the check: other options check again."""
    findings: list[Finding] = []
    error: str | None = None
    """What of the infrastructure failed, so that nothing is known; tried again when the check is resumed."""
    untouched: list[float] = []
    gold: list[float] = []
    seconds: float = 0.0


class Check(Protocol):
    """The check of one task; a task that is not checked in a sandbox makes its own (`own_check(repeats, gold)`)."""

    findings: list[Finding]
    untouched: list[float]
    """The reward of each attempt that did nothing."""
    gold: list[float]
    """The reward of each attempt with the right solution."""

    async def run(self) -> None:
        """Do all of it."""


class Results:
    """The reports in a JSONL file; those of the same task, content and options are not made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[tuple[str, str, str], Report] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        report = Report.model_validate_json(line)
                    except ValidationError:
                        continue  # the line that was written when it was cut off
                    if report.error is None:
                        self._done[report.key, report.hash, report.options] = report
            if path.read_bytes()[-1:] not in (b"", b"\n"):
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")

    def done(self, key: str, content: str, options: str) -> Report | None:
        """The report that is there already."""
        return self._done.get((key, content, options))

    def add(self, report: Report) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(report.model_dump_json() + "\n")


def table(reports: Iterable[Report]) -> str:
    """What was found, a line for each finding, and a line for all."""
    lines, kinds, tasks, failed = [], Counter[str](), 0, 0
    for report in reports:
        tasks += 1
        failed += bool(report.findings)
        told: list[tuple[str, str]] = [(finding.kind, finding.told) for finding in report.findings]
        told += [("error", report.error)] if report.error else []
        kinds.update(kind for kind, _ in told)
        lines += [(report.key, kind, " ".join(str(words).split())[:300]) for kind, words in told]
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
    shown = [f"{key[:60]:{min(widths[0], 60)}}  {kind:{widths[1]}}  {told}" for key, kind, told in lines]
    counted = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    shown.append(f"{tasks} tasks, {failed} with findings" + (f": {counted}" if counted else ""))
    return "\n".join(shown)
