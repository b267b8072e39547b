"""Reading runs: the episodes of trace files, line by line, each once, and what could not be read.

Memory holds one line, and one integer per episode (about 100 bytes; a trace is a thousand times that), so that an
episode found twice (a copied run, prime-rl's `effective` next to `all`) counts once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel, computed_field

from opencode_runs.traces.errors import BadInputError
from opencode_runs.traces.progress import Progress
from opencode_runs.traces.record import Episode, LineError, VersionError, parse_line
from opencode_runs.traces.runs import TraceFile

MAX_NAMED = 3
READ_BYTES = 1 << 20


class Identified(Protocol):
    """What tells an episode that is read twice."""

    @property
    def id(self) -> str: ...


Found = TypeVar("Found", bound=Identified)
Parsed = tuple[int, Found | LineError | None]
"""A line: its bytes, and its episode, or what is wrong with it, or None for an empty one."""


class RunReport(BaseModel):
    """How reading one trace file went."""

    path: Path
    episodes: int = 0
    duplicates: int = 0
    """Episodes that were read before, from this file or another."""
    repeated: int = 0
    """Those of them that stand in this file before."""
    torn: int = 0
    malformed: int = 0
    truncated_end: bool = False
    """The last line is not whole: the run was killed while writing it, or is still writing."""
    complaints: list[str] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unreadable(self) -> int:
        """Lines that hold no episode this command can read."""
        return self.torn + self.malformed

    def warnings(self) -> Iterator[str]:
        """What whoever named the run should know."""
        if self.unreadable:
            end = "; the last line is cut off" if self.truncated_end else ""
            lines = "line" if self.unreadable == 1 else "lines"
            yield f'"{self.path}": {self.unreadable:,} {lines} could not be read ({"; ".join(self.complaints)}){end}'
        if self.duplicates:
            yield f'"{self.path}": {self.duplicates:,} episodes were seen before and count once'
        if not self.episodes and not self.duplicates:
            yield f'"{self.path}": the run has no episode yet'


@dataclass
class Reading(Generic[Found]):
    """Reads trace files; afterwards `runs` says of each how it went."""

    lines: Callable[[TraceFile], Iterator[Parsed[Found]]]
    """Every line of a file, in order."""
    runs: list[RunReport] = field(default_factory=list)
    place: tuple[int, int] = (0, 0)
    """Where in its file the last line begins, and its bytes."""
    _seen: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, kind: type[Episode]) -> "Reading[Episode]":
        """Reads the episodes of files as records of one kind."""
        return Reading(partial(_lines_of, kind=kind))

    def episodes(self, files: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, Found]]:
        """Every episode that can be read and was not read before, with its file.

        Raises:
            BadInputError: a file cannot be read, or holds no episode, or traces of another schema.
        """
        with Progress("reading traces", sum(file.size for file in files), "MB", scale=1e6) as progress:
            for file in files:
                report = RunReport(path=file.path)
                self.runs.append(report)
                elsewhere = frozenset(self._seen)
                for episode in self._readable(file, report, progress):
                    identity = hash(episode.id)
                    if identity in self._seen:
                        report.duplicates += 1
                        report.repeated += identity not in elsewhere
                        continue
                    self._seen.add(identity)
                    report.episodes += 1
                    yield file, episode
                if report.unreadable and not report.episodes and not report.duplicates:
                    raise BadInputError(f'"{file.path}" holds no verifiers episode: {report.complaints[0]}')

    def _readable(self, file: TraceFile, report: RunReport, progress: Progress) -> Iterator[Found]:
        """The readable episodes of one file; the others are counted in `report`."""
        try:
            end = 0
            for number, (size, found) in enumerate(self.lines(file), start=1):
                progress.update(size)
                self.place, end = (end, size), end + size
                if isinstance(found, VersionError):
                    raise BadInputError(
                        f'"{file.path}" line {number}: {found}: read this run with the release that knows it'
                    )
                if isinstance(found, LineError):
                    report.truncated_end = found.unended
                    report.torn += found.torn
                    report.malformed += not found.torn
                    if len(report.complaints) < MAX_NAMED:
                        report.complaints.append(f"line {number}: {found}")
                elif found is not None:
                    yield found
        except OSError as error:
            raise BadInputError(f'cannot read traces "{file.path}": {error.strerror}') from None


def _lines_of(file: TraceFile, kind: type[Episode]) -> Iterator[Parsed[Episode]]:
    with file.path.open("rb", buffering=READ_BYTES) as lines:
        for line in lines:
            yield parsed(line, kind)


def parsed(line: bytes, kind: type[Episode]) -> Parsed[Episode]:
    """A line as `Reading` takes it."""
    if line.isspace():
        return len(line), None
    try:
        return len(line), parse_line(line, kind)
    except LineError as error:
        error.unended = not line.endswith(b"\n")
        return len(line), error.with_traceback(None)
