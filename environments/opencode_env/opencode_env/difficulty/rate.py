"""Rating: read the traces of runs line by line into one tally per env, model and task.

Memory holds one line, the tallies, and one integer per episode (about 100 bytes; a trace is a thousand times
that), so that an episode found twice (a copied run, prime-rl's `effective` next to `all`) counts once.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, computed_field

from opencode_env.difficulty.attempt import Failure, tries
from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.progress import Progress
from opencode_env.difficulty.record import EpisodeRecord, LineError, TraceRecord, VersionError, parse_line
from opencode_env.difficulty.runs import TraceFile, find_trace_files
from opencode_env.difficulty.tally import Tally

UNKNOWN_MODEL = "unknown model"
MAX_NAMED = 3
MAX_FACTS = 32
"""How many different sampling settings or versions are remembered per source."""
READ_BYTES = 1 << 20


class Source(NamedTuple):
    """Who made the attempts: figures of different sources are never mixed."""

    env: str
    model: str


@dataclass
class SourceRating:
    """Everything known about one source."""

    tasks: dict[str, Tally] = field(default_factory=dict)
    causes: Counter[str] = field(default_factory=Counter)
    """Why tries were not counted, by error type or stop condition."""
    sampling: dict[str, None] = field(default_factory=dict)
    """The sampling settings seen, as JSON texts."""
    versions: dict[str, None] = field(default_factory=dict)
    """The verifiers versions seen."""

    def mixtures(self, model: str) -> list[str]:
        """Warnings about differences between the tries that are pooled here."""
        found = ((self.sampling, "sampling settings"), (self.versions, "verifiers versions"))
        return [f"{model}: {what} differ and are pooled: {', '.join(facts)}" for facts, what in found if len(facts) > 1]

    def note(self, trace: TraceRecord) -> None:
        """Remember how the trace was made."""
        for facts, fact in ((self.sampling, trace.sampling_text), (self.versions, trace.verifiers)):
            if len(facts) < MAX_FACTS:
                facts[fact] = None


class RunReport(BaseModel):
    """How reading one trace file went."""

    path: Path
    episodes: int = 0
    duplicates: int = 0
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


@dataclass
class Rating:
    """What rating found: tallies by source and task key, and a report per trace file."""

    threshold: float
    sources: dict[Source, SourceRating] = field(default_factory=dict)
    runs: list[RunReport] = field(default_factory=list)

    @property
    def attempts(self) -> int:
        """Attempts over all sources."""
        return sum(tally.attempts for source in self.sources.values() for tally in source.tasks.values())


def rate(paths: list[Path], *, threshold: float = 1.0, seat: str | None = None) -> Rating:
    """Rate the runs at `paths` (run directories or `traces.jsonl` files).

    An attempt passes when its reward is at least `threshold`. `seat` names the seat whose tries count; None
    chooses as `attempt.tries` says.

    Raises:
        BadInputError: a path is no run, or a file cannot be read as traces of this schema.
    """
    files = find_trace_files(paths)
    rating = Rating(threshold)
    seen: set[int] = set()
    with Progress("reading traces", sum(file.size for file in files), "MB", scale=1e6) as progress:
        for file in files:
            report = RunReport(path=file.path)
            rating.runs.append(report)
            for episode in _episodes(file, report, progress):
                identity = hash(episode.id)
                if identity in seen:
                    report.duplicates += 1
                    continue
                seen.add(identity)
                report.episodes += 1
                _count(rating, episode, file.settings.model, seat)
            if report.unreadable and not report.episodes and not report.duplicates:
                raise BadInputError(f'"{file.path}" holds no verifiers episode: {report.complaints[0]}')
    return rating


def _episodes(file: TraceFile, report: RunReport, progress: Progress) -> Iterator[EpisodeRecord]:
    """The readable episodes of one file; the others are counted in `report`."""
    try:
        with file.path.open("rb", buffering=READ_BYTES) as lines:
            for number, line in enumerate(lines, start=1):
                progress.add(len(line))
                if line.isspace():
                    continue
                try:
                    yield parse_line(line)
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


def _count(rating: Rating, episode: EpisodeRecord, run_model: str | None, seat: str | None) -> None:
    assert episode.task is not None, "parse_line refuses an episode without one"
    for trace, found in tries(episode, seat):
        model = (trace.model if trace else None) or run_model or UNKNOWN_MODEL
        source = rating.sources.setdefault(Source(episode.env, model), SourceRating())
        if trace is not None:
            source.note(trace)
        tally = source.tasks.get(episode.task)
        if tally is None:
            tally = source.tasks[episode.task] = Tally(episode.task_id, episode.task_name, episode.prompt)
        tally.add(found, rating.threshold)
        if isinstance(found, Failure):
            source.causes[found.cause] += 1
