"""Reading runs: the episodes of trace files, line by line, each once, and what could not be read.

Memory holds one line, and one integer per episode (about 100 bytes; a trace is a thousand times that), so that an
episode found twice (a copied run, prime-rl's `effective` next to `all`) counts once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from pydantic import BaseModel, computed_field

from opencode_runs.traces.errors import BadInputError
from opencode_runs.traces.progress import Progress
from opencode_runs.traces.record import Episode, LineError, VersionError, parse_line
from opencode_runs.traces.runs import TraceFile

MAX_NAMED = 3
READ_BYTES = 1 << 20


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
            yield f'"{self.path}": {self.unreadable:,} lines could not be read ({"; ".join(self.complaints)}){end}'
        if self.duplicates:
            yield f'"{self.path}": {self.duplicates:,} episodes were seen before and count once'
        if not self.episodes and not self.duplicates:
            yield f'"{self.path}": the run has no episode yet'


@dataclass
class Reading(Generic[Episode]):
    """Reads trace files; afterwards `runs` says of each how it went."""

    kind: type[Episode]
    """What is read of an episode."""
    runs: list[RunReport] = field(default_factory=list)
    place: tuple[int, int] = (0, 0)
    """Where in its file the last line begins, and its bytes."""
    _seen: set[int] = field(default_factory=set)

    def episodes(self, files: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, Episode]]:
        """Every episode that can be read and was not read before, with its file.

        Raises:
            BadInputError: a file cannot be read, or holds no episode, or traces of another schema.
        """
        with Progress("reading traces", sum(file.size for file in files), "MB", scale=1e6) as progress:
            for file in files:
                report = RunReport(path=file.path)
                self.runs.append(report)
                elsewhere = frozenset(self._seen)
                for episode in self._lines(file, report, progress):
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

    def _lines(self, file: TraceFile, report: RunReport, progress: Progress) -> Iterator[Episode]:
        """The readable episodes of one file; the others are counted in `report`."""
        try:
            end = 0
            with file.path.open("rb", buffering=READ_BYTES) as lines:
                for number, line in enumerate(lines, start=1):
                    progress.add(len(line))
                    self.place, end = (end, len(line)), end + len(line)
                    if line.isspace():
                        continue
                    try:
                        yield parse_line(line, self.kind)
                    except VersionError as error:
                        raise BadInputError(
                            f'"{file.path}" line {number}: {error}: read this run with the release that knows it'
                        ) from None
                    except LineError as error:
                        report.truncated_end = not line.endswith(b"\n")
                        report.torn += error.torn
                        report.malformed += not error.torn
                        if len(report.complaints) < MAX_NAMED:
                            report.complaints.append(f"line {number}: {error}")
        except OSError as error:
            raise BadInputError(f'cannot read traces "{file.path}": {error.strerror}') from None
