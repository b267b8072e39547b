"""The first pass over a run: its figures, a row for each try, where each line stands, and which rollouts tell most."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opencode_runs.difficulty.attempt import tries
from opencode_runs.difficulty.figures import RateFigures, figures
from opencode_runs.difficulty.rate import RatedEpisode, Rating, rate
from opencode_runs.report.places import Run
from opencode_runs.report.record import ShownEpisode
from opencode_runs.report.rows import Row, mask_rows, rows
from opencode_runs.report.workers import Workers
from opencode_runs.traces.reading import READ_BYTES, Parsed, Reading, parsed
from opencode_runs.traces.record import LineError
from opencode_runs.traces.runs import TraceFile
from opencode_runs.trainable.figures import Report, TraceFigures
from opencode_runs.trainable.inspection import Inspected, Inspection, Inspector

CHUNK_BYTES = 4 << 20
"""Of a trace file that are read at once."""
AHEAD = 16
"""Chunks that may be read before what stands before them was taken up."""


@dataclass(slots=True)
class Rollout:
    """An episode of a run: where its line stands, its rows, and what a trainer makes of its traces."""

    run: Run
    start: int
    size: int
    """Bytes of its line."""
    rows: list[Row]
    figures: list[TraceFigures]


@dataclass
class Listing:
    rated: RateFigures
    report: Report
    rollouts: list[Rollout]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The lines that begin in a part of a run's file."""

    run: int
    start: int
    end: int | None
    """None: to the file's end."""


@dataclass(slots=True)
class Listed:
    id: str
    rated: RatedEpisode
    inspected: Inspected
    rows: list[Row]
    alike: bool
    """Whether it holds the types that verifiers writes."""


class Lister:
    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._inspector = Inspector()

    def read(self, chunk: Chunk) -> list[Parsed[Listed]]:
        found = [self._listed(chunk.run, line) for line in _lines(self._runs[chunk.run].file, chunk)]
        mask_rows([row for _, one in found if isinstance(one, Listed) for row in one.rows])
        return found

    def _listed(self, number: int, line: bytes) -> Parsed[Listed]:
        size, episode = parsed(line, ShownEpisode)
        if episode is None or isinstance(episode, LineError):
            return size, episode
        tried = tries(episode)
        found = self._inspector.inspect(self._runs[number].file, episode)
        listed = rows(episode, tried, [figures for figures, _ in found.traces], number)
        alike = not any(trace.wrong_types for trace in episode.traces)
        return size, Listed(episode.id, RatedEpisode.of(episode, tried), found, listed, alike)


def _lines(file: TraceFile, chunk: Chunk) -> Iterator[bytes]:
    with file.path.open("rb", buffering=READ_BYTES) as lines:
        place = chunk.start
        if chunk.start:
            lines.seek(chunk.start - 1)
            rest = lines.readline(-1 if chunk.end is None else chunk.end - chunk.start + 1)
            if not rest.endswith(b"\n"):
                return  # No line begins here.
            place += len(rest) - 1
        while (chunk.end is None or place < chunk.end) and (line := lines.readline()):
            yield line
            place += len(line)


def list_run(run: Run, number: int, threshold: float, workers: Workers) -> Listing:
    """Read a run once; `workers` do what `Lister.read` does.

    Raises:
        BadInputError: the run cannot be read as traces of this schema.
    """

    def lines(file: TraceFile) -> Iterator[Parsed[Listed]]:
        starts = [*range(0, max(file.size, 1), CHUNK_BYTES), None]
        chunks = [Chunk(number, start, end) for start, end in itertools.pairwise(starts) if start is not None]
        for chunk in workers.results(len(chunks), chunks.__getitem__, lambda number: number - AHEAD):
            yield from chunk

    rating, reading, inspection = Rating(threshold), Reading(lines), Inspection()
    rollouts: list[Rollout] = []
    alike = True
    for file, episode in reading.episodes([run.file]):
        rating.count(episode.rated, file.settings.model)
        alike = alike and episode.alike
        found = inspection.add(file, episode.inspected)
        rollouts.append(Rollout(run, *reading.place, episode.rows, found))
    if not alike or any(report.malformed for report in reading.runs):
        # `opencode-difficulty` takes other types where they can be read as the right ones.
        rating = rate([run.file.path], threshold=threshold)
    return Listing(figures(rating), inspection.report(reading.runs), rollouts)


def by_interest(rollouts: Iterable[Rollout]) -> list[Rollout]:
    """The rollouts whose conversations are kept first, if not all have room.

    An attempt of each outcome of each task comes before a second of the same; among those, errors and forks, then tasks
    whose rewards differ, then what earned less than the best.
    """
    rewards: defaultdict[Any, set[float | None]] = defaultdict(set)
    listed = list(rollouts)
    for row in itertools.chain.from_iterable(rollout.rows for rollout in listed):
        rewards[row.run, row.key].add(row.reward)
    best = max((reward for found in rewards.values() for reward in found if reward is not None), default=0.0)
    seen: Counter[Any] = Counter()

    def interest(rollout: Rollout) -> tuple[int, int]:
        kinds, ranks = [], []
        for row in rollout.rows:
            kinds.append((row.run, row.key, row.outcome, row.reward))
            differs = len(rewards[row.run, row.key]) > 1
            ranks.append(0 if row.reward is None or row.forks else 1 if differs else 2 if row.reward < best else 3)
        before = seen[tuple(kinds)]
        seen[tuple(kinds)] += 1
        return before, min(ranks)

    return sorted(listed, key=interest)
