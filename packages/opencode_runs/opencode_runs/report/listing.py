"""The first pass over a run: its figures, a row for each try, where each line stands, and which rollouts tell most."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from opencode_runs.difficulty.figures import RateFigures, figures
from opencode_runs.difficulty.rate import Rating, rate
from opencode_runs.report.places import Run
from opencode_runs.report.record import ShownEpisode
from opencode_runs.report.rows import Row, rows
from opencode_runs.traces.reading import Reading
from opencode_runs.trainable.figures import Report, TraceFigures
from opencode_runs.trainable.inspection import Inspection


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
    """What one pass over a run finds."""

    rated: RateFigures
    report: Report
    rollouts: list[Rollout]


def list_run(run: Run, number: int, threshold: float) -> Listing:
    """Read a run once.

    Raises:
        BadInputError: the run cannot be read as traces of this schema.
    """
    rating, reading, inspection = Rating(threshold), Reading(ShownEpisode), Inspection()
    rollouts: list[Rollout] = []
    alike = True
    for file, episode in reading.episodes([run.file]):
        tries = rating.count(episode, file.settings.model)
        alike = alike and not any(trace.wrong_types for trace in episode.traces)
        found = inspection.add(file, episode)
        rollouts.append(Rollout(run, *reading.place, rows(episode, tries, found, number), found))
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
