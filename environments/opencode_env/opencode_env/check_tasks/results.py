"""The reports of a check: a file that grows by a line for each task, so that a check can be ended and resumed."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from opencode_env.check_tasks.report import Report


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
        """Keep a report."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(report.model_dump_json() + "\n")


def table(reports: Iterable[Report]) -> str:
    """What was found, a line for each finding, and a line for all."""
    lines, kinds, tasks, failed = [], Counter[str](), 0, 0
    for report in reports:
        tasks += 1
        failed += bool(report.findings)
        kinds.update(finding.kind for finding in report.findings)
        told: list[tuple[str, str]] = [(finding.kind, finding.told) for finding in report.findings]
        told += [("error", report.error)] if report.error else []
        kinds.update(["error"] if report.error else [])
        lines += [(report.key, kind, " ".join(str(words).split())[:300]) for kind, words in told]
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
    shown = [f"{key[:60]:{min(widths[0], 60)}}  {kind:{widths[1]}}  {told}" for key, kind, told in lines]
    counted = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    shown.append(f"{tasks} tasks, {failed} with findings" + (f": {counted}" if counted else ""))
    return "\n".join(shown)
