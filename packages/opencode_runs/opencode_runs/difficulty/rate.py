"""Rating: read the traces of runs line by line into one tally per env, model and task.

Memory holds the tallies and what reading takes.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from opencode_runs.difficulty.attempt import Failure, Tries, tries
from opencode_runs.difficulty.tally import Tally
from opencode_runs.traces.reading import Reading, RunReport
from opencode_runs.traces.record import EpisodeRecord, TraceRecord
from opencode_runs.traces.runs import find_trace_files

UNKNOWN_MODEL = "unknown model"
MAX_FACTS = 32
"""How many different sampling settings or versions are remembered per source."""


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

    def count(self, episode: EpisodeRecord, run_model: str | None, seat: str | None = None) -> Tries:
        """Count the tries of an episode, and return them; `run_model` is whom one without any trace belongs to."""
        assert episode.task is not None, "parse_line refuses an episode without one"
        counted = tries(episode, seat)
        for trace, found in counted:
            model = (trace.model if trace else None) or run_model or UNKNOWN_MODEL
            source = self.sources.setdefault(Source(episode.env, model), SourceRating())
            if trace is not None:
                source.note(trace)
            tally = source.tasks.get(episode.task)
            if tally is None:
                tally = source.tasks[episode.task] = Tally(episode.task_id, episode.task_name, episode.prompt)
            tally.add(found, self.threshold)
            if isinstance(found, Failure):
                source.causes[found.cause] += 1
        return counted


def rate(paths: list[Path], *, threshold: float = 1.0, seat: str | None = None) -> Rating:
    """Rate the runs at `paths` (run directories or `traces.jsonl` files).

    An attempt passes when its reward is at least `threshold`. `seat` names the seat whose tries count; None
    chooses as `attempt.tries` says.

    Raises:
        BadInputError: a path is not a run, or a file cannot be read as traces of this schema.
    """
    reading = Reading(EpisodeRecord)
    rating = Rating(threshold, runs=reading.runs)
    for file, episode in reading.episodes(find_trace_files(paths)):
        rating.count(episode, file.settings.model, seat)
    return rating
