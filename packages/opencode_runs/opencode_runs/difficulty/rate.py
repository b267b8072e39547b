"""Rating: read the traces of runs line by line into one tally per env, model and task.

Memory holds the tallies and what reading takes.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from opencode_runs.difficulty.attempt import Attempt, Failure, Tries, tries
from opencode_runs.difficulty.tally import Tally
from opencode_runs.traces.reading import Reading, RunReport
from opencode_runs.traces.record import EpisodeRecord
from opencode_runs.traces.runs import find_trace_files

MAX_FACTS = 32
"""How many different sampling settings or versions are remembered per source."""


class Source(NamedTuple):
    """Who made the attempts: figures of different sources are never mixed."""

    env: str
    model: str


class Made(NamedTuple):
    model: str | None
    sampling: str
    verifiers: str


@dataclass(slots=True)
class RatedEpisode:
    env: str
    task: str
    task_id: str | None
    task_name: str | None
    prompt: str | None
    tries: list[tuple[Made | None, Attempt | Failure]]

    @classmethod
    def of(cls, episode: EpisodeRecord, tried: Tries) -> "RatedEpisode":
        assert episode.task is not None, "parse_line refuses an episode without one"
        made = []
        for trace, found in tried:
            how = Made(trace.model, trace.sampling_text, trace.verifiers) if trace is not None else None
            made.append((how, found))
        return cls(episode.env, episode.task, episode.task_id, episode.task_name, episode.prompt, made)


@dataclass
class SourceRating:
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

    def note(self, made: Made) -> None:
        for facts, fact in ((self.sampling, made.sampling), (self.versions, made.verifiers)):
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
        return sum(tally.attempts for source in self.sources.values() for tally in source.tasks.values())

    def count(self, episode: RatedEpisode, run_model: str | None) -> None:
        """Count the tries of an episode; `run_model` is whom one without any trace belongs to."""
        for made, found in episode.tries:
            model = (made.model if made else None) or run_model or "unknown model"
            source = self.sources.setdefault(Source(episode.env, model), SourceRating())
            if made is not None:
                source.note(made)
            tally = source.tasks.get(episode.task)
            if tally is None:
                tally = source.tasks[episode.task] = Tally(episode.task_id, episode.task_name, episode.prompt)
            tally.add(found, self.threshold)
            if isinstance(found, Failure):
                source.causes[found.cause] += 1


def rate(paths: list[Path], *, threshold: float = 1.0, seat: str | None = None) -> Rating:
    """Rate the runs at `paths` (run directories or `traces.jsonl` files).

    An attempt passes when its reward is at least `threshold`. `seat` names the seat whose tries count; None
    chooses as `attempt.tries` says.

    Raises:
        BadInputError: a path is not a run, or a file cannot be read as traces of this schema.
    """
    reading = Reading.of(EpisodeRecord)
    rating = Rating(threshold, runs=reading.runs)
    for file, episode in reading.episodes(find_trace_files(paths)):
        rating.count(RatedEpisode.of(episode, tries(episode, seat)), file.settings.model)
    return rating
