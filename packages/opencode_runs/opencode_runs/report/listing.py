"""The first pass over a run: its figures, a row for each try, where each line stands, and which rollouts tell most."""

import itertools
import multiprocessing
import os
import signal
import sys
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from threading import Thread
from typing import Any, Self

from opencode_runs.difficulty.rate import Attempt, RatedEpisode, RateFigures, Rating, Tries, figures, tries
from opencode_runs.errors import LineError, WorkerDiedError
from opencode_runs.report.masking import Masker
from opencode_runs.report.packing import LineToPack, as_json
from opencode_runs.traces.reading import READ_BYTES, Parsed, Run, TraceFile, TraceReader, parsed
from opencode_runs.traces.record import BranchOrigin, EpisodeRecord, ErrorRecord, TraceRecord, tokens_used
from opencode_runs.trainable.findings import Report, TraceFigures
from opencode_runs.trainable.inspection import InspectedEpisode, Inspection, inspected

MAX_PROCESSES = 4
"""Each takes memory."""


def processors() -> int:
    """Return how many processes are worth having: those that may run at once, and few."""
    return min(MAX_PROCESSES, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1


class Workers:
    """Processes that do `work`, one item at a time each."""

    def __init__(self, count: int, work: Callable[[Any], Any]) -> None:
        self._work = work
        self._pool: ProcessPoolExecutor | None = None
        if count < 2:
            return
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _begin, (work,))
        with warnings.catch_warnings():
            # numpy's threads, of which Python warns, are not used by any work here.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                pool.submit(int).result()  # The first item starts all processes.
                self._pool = pool
            except OSError:  # no more processes: this one does the work
                for child in set(multiprocessing.active_children()) - others:
                    child.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def results(self, count: int, item: Callable[[int], Any], after: Callable[[int], int]) -> Iterator[Any]:
        """The results of `count` items, in order.

        Args:
            item: makes the item of a number; it is asked for in order.
            after: how many results must have been taken before the item of a number can be made.

        Raises:
            WorkerDiedError: a process ended.
            Exception: what the work raised.
        """
        if self._pool is None:
            yield from (self._work(item(number)) for number in range(count))
            return
        sent, waiting = 0, deque[Future[Any]]()
        try:
            for taken in range(count):
                while sent < count and after(sent) <= taken:
                    waiting.append(self._pool.submit(_do, item(sent)))
                    sent += 1
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise WorkerDiedError from None


def _begin(work: Callable[[Any], Any]) -> None:
    """Set up a new process. Ctrl-C is for the one that started it, with which it ends."""
    global _do_here  # noqa: PLW0603 - a process does one work
    _do_here = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_do_here: Callable[[Any], Any]


def _do(item: Any) -> Any:
    return _do_here(item)


CHUNK_BYTES = 4 << 20
"""Of a trace file that are read at once."""
AHEAD = 16
"""Chunks that may be read before what stands before them was taken up."""
HEAD = 160
"""Characters of the last answer that are searched without opening the rollout."""
MESSAGE = 600
"""Characters of an error's message."""
PHASES = ("boot", "setup", "agent", "finalize", "scoring")


@dataclass(slots=True)
class TryRow:
    """A try: what the page lists of it, and what tells which tries are shown; a run has thousands."""

    text: bytes
    """JSON, but for what is known only once the whole run was read."""
    run: int
    key: str | None
    id: str
    task: str
    outcome: str
    reward: float | None
    forks: int
    branch: BranchOrigin | None
    trace: TraceFigures | None
    detail: int | None = None
    """The number of its rollout in the page; None if it had no room."""
    masked: Counter[str] | None = None

    def settled(self) -> bytes:
        """JSON with what a trainer makes of its trace, which is known once the whole group was read; not masked."""
        found: dict[str, Any] = {"detail": self.detail}
        if self.trace is not None:
            found |= {"advantage": self.trace.advantage, "unused": self.trace.unused_because}
            found |= {"trained": self.trace.trained_tokens, "findings": sorted(self.trace.findings)}
        return as_json(found)


@dataclass(slots=True)
class ListedRollout:
    """An episode of a run: its line, and its rows."""

    line: LineToPack
    rows: list[TryRow]


@dataclass
class Listing:
    rated: RateFigures
    report: Report
    rollouts: list[ListedRollout]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The lines that begin in a part of a run's file."""

    run: int
    start: int
    end: int | None


@dataclass(slots=True)
class ListedEpisode:
    id: str
    rated: RatedEpisode
    inspected: InspectedEpisode
    rows: list[TryRow]


def read_chunk(file: TraceFile, chunk: Chunk) -> list[Parsed[ListedEpisode]]:
    """Read the lines of a file that begin in a part of it, and list their episodes."""
    found: list[Parsed[ListedEpisode]] = []
    rows: list[TryRow] = []
    for line in _lines(file, chunk):
        size, episode = parsed(line)
        if episode is None or isinstance(episode, LineError):
            found.append((size, episode))
            continue
        tried, inspection = tries(episode), inspected(file, episode)
        listed = _rows(episode, tried, inspection, chunk.run)
        found.append((size, ListedEpisode(episode.id, RatedEpisode.of(episode, tried), inspection, listed)))
        rows += listed
    # Mostly there is nothing to mask, which is seen at once for all rows.
    masker = Masker()
    masker.json(b"\n".join([row.text for row in rows]))
    for row in rows if masker.counts else ():
        masker = Masker()
        row.text = masker.json(row.text)
        row.masked = masker.counts or None
    return found


def _rows(episode: EpisodeRecord, tried: Tries, inspection: InspectedEpisode, run: int) -> list[TryRow]:
    by_trace = {id(trace): found for trace, (found, _) in zip(episode.traces, inspection.traces, strict=True)}
    rows = []
    for trace, outcome in tried:
        said: dict[str, Any] = {
            "run": run, "episode": episode.id, "id": episode.id, "key": episode.task, "task": episode.called,
            "prompt": episode.prompt, "errors": [error.type for error in episode.errors], "env": episode.env,
            "message": _message(episode.errors),
        }  # fmt: skip
        if isinstance(outcome, Attempt):
            said |= {"outcome": "timeout" if outcome.timed_out else "ok", "counts": "attempt", "reward": outcome.reward}
        else:
            counts = "unscored" if outcome.unscored else "error"
            said |= {"outcome": outcome.cause, "counts": counts, "reward": None}
        found, branch = None, None
        if trace is not None:
            found, branch = by_trace[id(trace)], trace.branch
            said |= _of_trace(episode, trace, found)
        forks = found.forks if found else 0
        facts = (said["id"], episode.called, said["outcome"], said["reward"], forks, branch, found)
        rows.append(TryRow(as_json(said), run, episode.task, *facts))
    return rows


def _of_trace(episode: EpisodeRecord, trace: TraceRecord, figures: TraceFigures) -> dict[str, Any]:
    spans = {phase: span for phase in PHASES if (span := trace.span(phase))}
    return {
        "id": trace.id or episode.id, "model": trace.model, "stop": trace.stop_condition, "turns": trace.turns,
        "tokens": trace.num_total_tokens, "errors": [error.type for error in trace.errors],
        "message": _message(trace.errors) or _message(episode.errors),
        "used": tokens_used(call.usage for other in episode.traces for call in other.calls),
        "metrics": {name: value for name, value in trace.metrics.items() if value},
        "tools": _tool_calls(trace), "last": _last_words(trace),
        "times": {phase: round(end - start, 3) for phase, (start, end) in spans.items()}
        | {"model": round(trace.model_seconds, 3)},
        "start": min((start for start, _ in spans.values()), default=None),
        "subs": sum(other.turns for other in episode.traces if other is not trace),
        "forks": figures.forks,
        "branch": trace.branch.model_dump() if trace.branch else None,
    }  # fmt: skip


def _message(errors: Sequence[ErrorRecord]) -> str | None:
    """Return what the last error says, on one line, by which failures are grouped; of a long one the first words."""
    said = errors[-1].message if errors else None
    if not isinstance(said, str):
        return None
    text = " ".join(said[: 2 * MESSAGE].split())
    return text if len(text) <= MESSAGE else f"{text[:MESSAGE].rpartition(' ')[0] or text[:MESSAGE]} …"


def _tool_calls(trace: TraceRecord) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in trace.nodes:
        if node.sampled and isinstance(node.message, dict):
            for call in node.message.get("tool_calls") or ():
                name = call.get("name") if isinstance(call, dict) else None
                counts[str(name)[:80]] += 1
    return dict(counts.most_common())


def _last_words(trace: TraceRecord) -> str:
    for node in reversed(trace.nodes):
        if node.sampled and isinstance(node.message, dict) and isinstance(node.message.get("content"), str):
            content = node.message["content"]
            words = " ".join(content[: 2 * HEAD].split())
            return (words if len(words) >= HEAD else " ".join(content[: 10 * HEAD].split()))[:HEAD]
    return ""


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
    """Read a run once; `workers` do what `read_chunk` does.

    Raises:
        BadInputError: the run cannot be read as traces of this schema.
    """

    def lines(file: TraceFile) -> Iterator[Parsed[ListedEpisode]]:
        starts = [*range(0, max(file.size, 1), CHUNK_BYTES), None]
        chunks = [Chunk(number, start, end) for start, end in itertools.pairwise(starts) if start is not None]
        for chunk in workers.results(len(chunks), chunks.__getitem__, lambda number: number - AHEAD):
            yield from chunk

    rating, reading, inspection = Rating(threshold), TraceReader(lines), Inspection()
    rollouts: list[ListedRollout] = []
    for file, episode in reading.episodes([run.file]):
        rating.count(episode.rated, file.settings.model)
        found = inspection.add(file, episode.inspected)
        line = LineToPack(file.path, *reading.place, [row.id for row in episode.rows], found)
        rollouts.append(ListedRollout(line, episode.rows))
    return Listing(figures(rating), inspection.report(reading.runs), rollouts)


def by_interest(rollouts: Iterable[ListedRollout]) -> list[ListedRollout]:
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

    def interest(rollout: ListedRollout) -> tuple[int, int]:
        kinds, ranks = [], []
        for row in rollout.rows:
            kinds.append((row.run, row.key, row.outcome, row.reward))
            differs = len(rewards[row.run, row.key]) > 1
            ranks.append(0 if row.reward is None or row.forks else 1 if differs else 2 if row.reward < best else 3)
        before = seen[tuple(kinds)]
        seen[tuple(kinds)] += 1
        return before, min(ranks)

    return sorted(listed, key=interest)
