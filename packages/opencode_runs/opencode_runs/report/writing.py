"""Writing the page: one pass for the figures and the rows, then the rollouts themselves, the most telling ones first.

Memory holds a row for each try and one episode; the rollouts, compressed, wait in a temporary file until the page's
head, which stands before them, is known.
"""

import base64
import hashlib
import html
import json
import random
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from opencode_runs.console_command import replacing
from opencode_runs.difficulty.rate import Band, RateFigures, TaskFigures, Thresholds
from opencode_runs.errors import BadInputError
from opencode_runs.progress import Progress
from opencode_runs.report.listing import (
    Chunk,
    ListedRollout,
    Listing,
    TryRow,
    Workers,
    by_interest,
    list_run,
    processors,
    read_chunk,
)
from opencode_runs.report.masking import RULES, Masker
from opencode_runs.report.packing import Batch, PackedRollout, PackedText, Packer, SpaceLeft, as_json, pack
from opencode_runs.traces.reading import Run, saved_config
from opencode_runs.turns.tree import TreeRollout, tree_of

MAX_COMPARED = 6
"""Runs of which each pair is compared; of more, neighbours are."""
MISSES = 16
"""Rollouts in a row that found no room, after which no more are tried."""
BATCH = 8
"""Rollouts that are packed together at most; the first batches are smaller."""
_BEHIND = 8
"""Batches that may be under way: the room of one follows from what was written so many before it."""
PLAIN_BYTES = 4 << 20
"""Bytes of the index up to which it is not compressed."""
WORTHWHILE = 32e6
"""Bytes of traces from which several processes read them."""
RESAMPLES, _CREDIBLE = 2000, 0.95
"""Of the interval of a comparison."""
_SLACK = 1e-9
"""Mean rewards that differ by less are equal."""


@dataclass
class Page:
    room: SpaceLeft
    masked: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    """Rollouts that found no room."""
    cut: int = 0
    """Characters that were left out of long texts."""
    _count: int = 0
    _shared: set[str] = field(default_factory=set)

    def take(self, out: IO[bytes], written: PackedRollout) -> int | None:
        """Write a rollout that was packed; its number, None if it has no room."""
        for ratio in written.ratios:
            self.room.learn(ratio)
        for name, value in written.shared.items():
            if name not in self._shared:
                self._shared.add(name)
                self._append(out, name, value)
        if written.rollout is None or not self.room.has(len(written.rollout.text), modest=written.modest):
            return None
        self._append(out, str(self._count), written.rollout)
        self._count += 1
        return self._count - 1

    def _append(self, out: IO[bytes], name: str, value: PackedText) -> None:
        out.write(b"%s %s\n" % (name.encode(), value.text))
        self.room.free -= len(value.text)
        self.masked += value.masked
        self.cut += value.cut


def write_page(
    runs: Sequence[Run],
    output: Path,
    *,
    max_mb: float,
    threshold: float = 1.0,
    prices: Sequence[float] | None = None,
    processes: int | None = None,
) -> Page:
    """Write the page of `runs`; returns what it left out and masked.

    Args:
        max_mb: megabytes of rollouts in it.
        threshold: the reward at which an attempt passes.
        prices: dollars for a million tokens: read anew, read from a cache, sampled; None: no cost is shown.
        processes: that read and pack; None: as many as are worth it. The page is the same.

    Raises:
        BadInputError: a run cannot be read as traces of this schema.
    """
    packer = Packer()

    def work(item: Chunk | Batch) -> Any:
        return read_chunk(runs[item.run].file, item) if isinstance(item, Chunk) else packer.write(item)

    if processes is None:
        processes = processors() if sum(run.file.size for run in runs) >= WORTHWHILE else 1
    with _temporary_file() as chunks:
        with Workers(processes, work) as workers:
            found = [list_run(run, number, threshold, workers) for number, run in enumerate(runs)]
            rollouts = [rollout for one in found for rollout in one.rollouts]
            page = Page(SpaceLeft(int(max_mb * 1e6), sum(rollout.line.size for rollout in rollouts)))
            _write_rollouts(page, chunks, by_interest(rollouts), workers)
        index = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"), "threshold": threshold,
            "runs": [_run(run, one) for run, one in zip(runs, found, strict=True)], "prices": prices,
            "comparisons": _comparisons([one.rated for one in found]),
            "turns": _turns([row for rollout in rollouts for row in rollout.rows]),
            "left_out": page.left_out, "cut": page.cut, "rules": [rule.name for rule in RULES],
        }  # fmt: skip
        masker = Masker(page.masked)
        text = masker.json(as_json(index))
        rows = _rows([row for rollout in rollouts for row in rollout.rows], masker)
        # The index of ten thousand rollouts is large, and so is each copy of its text.
        del index, rollouts, found
        packed = _index(text[:-1], b',"masked":', as_json(masker.counts), b',"rows":[', rows, b"]}")
        del text, rows
        title = masker.text(" · ".join(run.label for run in runs[:3]))
        chunks.seek(0)
        with replacing([output]) as (place,), place.open("wb") as out:
            out.write(head(packed, title=title))
            while block := chunks.read(1 << 20):
                out.write(block)
            out.write(b"</script></body></html>\n")
    return page


def _index(*parts: bytes) -> bytes:
    """The index as it stands in the page: as text where that is short, as the browser has it sooner."""
    if sum(map(len, parts)) > PLAIN_BYTES:
        return pack(*parts)
    return b"".join(parts).replace(b"<", b"\\u003c")


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    try:
        with tempfile.TemporaryFile() as file:
            yield file
    except OSError as error:
        said = f"cannot write a temporary file: {error.strerror or error}"
        raise BadInputError(f"{said}; TMPDIR can name a folder with room for the page") from error


def _write_rollouts(page: Page, out: IO[bytes], rollouts: list[ListedRollout], workers: Workers) -> None:
    batches: list[list[ListedRollout]] = []
    start = 0
    while start < len(rollouts):  # The first ones are small, so that what they teach is known early.
        batches.append(rollouts[start : start + max(1, min(BATCH, start // 2))])
        start += len(batches[-1])
    rooms, misses = [replace(page.room)], 0
    """What was left after each batch."""

    def batch(number: int) -> Batch:
        # What is under way takes its share of the room and of the lines.
        return Batch([one.line for one in batches[number]], rooms[_settled(number)])

    with Progress("writing rollouts", len(rollouts), "rollouts") as progress:
        for one, found in zip(batches, workers.results(len(batches), batch, _settled), strict=False):
            for rollout, written in zip(one, found, strict=True):
                number = page.take(out, written) if misses < MISSES else None
                misses = 0 if number is not None else misses + 1
                page.room.lines -= rollout.line.size
                for row in rollout.rows:
                    row.detail = number
                progress.update(1)
            rooms.append(replace(page.room))
            if misses >= MISSES:
                break
    page.left_out = sum(all(row.detail is None for row in rollout.rows) for rollout in rollouts)


def _settled(number: int) -> int:
    """Return how many batches must be written before one is begun."""
    return max(number - _BEHIND, number // 2)


def _rows(listed: list[TryRow], masker: Masker) -> bytes:
    if not listed:
        return b""
    for row in listed:
        masker.counts += row.masked or {}
    settled = masker.json(b"\n".join([row.settled() for row in listed])).split(b"\n")
    return b",".join([b"%s,%s" % (row.text[:-1], one[1:]) for row, one in zip(listed, settled, strict=True)])


def _run(run: Run, found: Listing) -> dict[str, Any]:
    bands, report = Thresholds(), found.report
    sources = [source.model_dump(mode="json") for source in found.rated.sources]
    for source in sources:
        for row in source["rows"]:
            row["band"] = bands.band(row["avg_reward"])
    return {
        "label": run.label, "series": run.series, "step": run.step, "path": _shown(run.file.path), "sources": sources,
        "config": _config(run.file.path),
        "bands": {band: bands.describe(band) for band in Band},
        "trainable": report.summary.model_dump(mode="json"), "usable": report.usable,
        "findings": [finding.model_dump(mode="json") for finding in report.findings],
        "groups": [group.model_dump(mode="json", exclude={"run"}) for group in report.groups],
        "warnings": [
            line.replace(str(run.file.path), _shown(run.file.path)) for one in report.runs for line in one.warnings()
        ],
    }  # fmt: skip


def _config(trace_file: Path) -> dict[str, Any] | None:
    """The configuration that a run saved, with which it can be repeated; None if there is none that can be read."""
    place = saved_config(trace_file)
    try:
        return None if place is None else {"path": _shown(place), "options": json.loads(place.read_bytes())}
    except (OSError, ValueError, RecursionError):
        return None


def _shown(path: Path) -> str:
    """A path that says nothing of the machine to whoever is sent the page: from here, or from the user's home."""
    for place, name in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(place):
            return f"{name}{path.relative_to(place)}"
    return str(Path(*path.parts[-3:]))


def _turns(listed: list[TryRow]) -> list[dict[str, Any]]:
    if not any(row.branch for row in listed):
        return []
    found = {row.id: TreeRollout.of(row.id, row.task, row.branch, row.reward, row.outcome) for row in listed}
    return [trunk.model_dump(mode="json") for trunk in tree_of(found).trunks]


def _comparisons(rated: list[RateFigures]) -> list[dict[str, Any]]:
    tasks = [{row.key: row for source in one.sources for row in source.rows} for one in rated]
    count = len(tasks)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if count <= MAX_COMPARED or b == a + 1]
    return [{"a": a, "b": b} | found for a, b in pairs if (found := compare(tasks[a], tasks[b])) is not None]


def compare(first: dict[str, TaskFigures], second: dict[str, TaskFigures]) -> dict[str, Any] | None:
    """Mean difference of the tasks' mean rewards (second less first), tasks won and lost; None if none is shared.

    The interval is a bootstrap over tasks: the percentiles of the means of 2,000 samples of the differences, drawn with
    replacement from a fixed seed.
    """
    shared = [key for key in first if key in second]
    pairs = [(key, first[key].avg_reward, second[key].avg_reward) for key in shared]
    differences = {key: after - before for key, before, after in pairs if before is not None and after is not None}
    if not differences:
        return None
    values = list(differences.values())
    low, high = interval(values)
    return {
        "tasks": len(values), "mean": statistics.fmean(values), "low": low, "high": high,
        "won": [key for key, value in differences.items() if value > _SLACK],
        "lost": [key for key, value in differences.items() if value < -_SLACK],
    }  # fmt: skip


def interval(values: list[float]) -> tuple[float | None, float | None]:
    """The bootstrap interval of a mean; None where there are fewer than two values."""
    if len(values) < 2:
        return None, None
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - _CREDIBLE) / 2
    return means[int(tail * RESAMPLES)], means[int((1 - tail) * RESAMPLES) - 1]


_SCRIPTS = ("data.js", "text.js", "charts.js", "overview.js", "rollouts.js", "conversation.js", "rollout.js", "main.js")


@cache
def _file(name: str) -> str:
    return (files("opencode_runs.report") / "page" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(map(_file, _SCRIPTS)) + "\n})();\n"


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def policy() -> str:
    """The content policy: our script and our style by their digests, pictures that stand in the page, nothing else."""
    return (
        f"default-src 'none'; script-src {_digest(_script())}; style-src {_digest(_file('page.css'))}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def head(index: bytes, *, title: str) -> bytes:
    values = {
        "policy": html.escape(policy()), "title": html.escape(title), "style": _file("page.css"),
        "index": index.decode(), "script": _script(),
    }  # fmt: skip
    # In one go: what a run holds can look like a place of the template.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], _file("page.html")).encode("utf-8", "replace")
