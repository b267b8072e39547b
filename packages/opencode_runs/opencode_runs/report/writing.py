"""Writing the page: one pass for the figures and the rows, then the rollouts themselves, the most telling ones first.

Memory holds a row for each try and one episode; the rollouts, compressed, wait in a temporary file until the page's
head, which stands before them, is known.
"""

import base64
import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from isal import isal_zlib

from opencode_runs.difficulty.figures import RateFigures
from opencode_runs.difficulty.outputs import replacing
from opencode_runs.difficulty.thresholds import Band, Thresholds
from opencode_runs.report.cleaning import CAPS, as_json, cut_masked, fitting_cap, lengths
from opencode_runs.report.comparison import compare
from opencode_runs.report.details import details
from opencode_runs.report.listing import Listing, Rollout, by_interest, list_run
from opencode_runs.report.masking import RULES, Masker
from opencode_runs.report.places import Run
from opencode_runs.report.record import ShownEpisode
from opencode_runs.report.rows import Row
from opencode_runs.report.template import FOOT, head
from opencode_runs.traces.progress import Progress
from opencode_runs.traces.record import parse_line
from opencode_runs.turns.rewards import Rollout as Continued
from opencode_runs.turns.tree import tree_of

MAX_COMPARED = 6
"""Runs of which each pair is compared; of more, neighbours are."""
LEVEL = 1
RATIO = 2.5
"""Characters that fit into a byte of the page, until it is known better."""
MOST = 4
"""A rollout gets at most this part of the room that is left, however much it needs."""
MISSES = 16
"""Rollouts in a row that found no room, after which no more are tried."""
SHARED_FROM = 2000
"""Characters from which a system prompt is kept once for all rollouts that have it."""


@dataclass
class Page:
    """A page that is being made."""

    room: int
    """Bytes that are left for rollouts."""
    masker: Masker = field(default_factory=Masker)
    left_out: int = 0
    """Rollouts that found no room."""
    cut: int = 0
    """Characters that were left out of long texts."""
    _ratio: float = RATIO
    _count: int = 0
    _shared: dict[bytes, int] = field(default_factory=dict)

    def put(self, out: IO[bytes], value: Any, share: float) -> int | None:
        """Write a rollout, its long texts cut so that it needs about `share` bytes; its number, None if it has no room.

        What needs more with the shortest texts gets it, if there is enough room.
        """
        found = lengths(value)
        cap = None if sum(found) <= share * self._ratio else fitting_cap(found, share * self._ratio)
        while True:
            masker = Masker()
            small, left_out = (value, 0) if cap is None else cut_masked(value, masker, cap)
            packed = pack(masker.json(as_json(small)))
            ratio = (sum(found) if cap is None else sum([min(length, cap) for length in found])) / len(packed)
            self._ratio += (ratio - self._ratio) / 8
            if len(packed) <= share or (cap == CAPS[-1] and len(packed) <= self.room // MOST):
                self.cut += left_out
                self.masker.counts += masker.counts
                return self.append(out, packed)
            if cap == CAPS[-1]:
                return None
            shorter = CAPS[0] if cap is None else CAPS[CAPS.index(cap) + 1]
            cap = min(shorter, fitting_cap(found, ratio * share))

    def append(self, out: IO[bytes], packed: bytes) -> int:
        """Write a compressed value; its number."""
        out.write(b'<script type="text/plain" id="d%d">%s</script>\n' % (self._count, packed))
        self.room -= len(packed)
        self._count += 1
        return self._count - 1

    def share_prompts(self, out: IO[bytes], value: dict[str, Any]) -> None:
        """Replace long system prompts and tool lists by the number of the one copy that the page has."""
        for trace in value["traces"]:
            trace["tools"] = self._shared_number(out, trace["tools"]) if trace["tools"] else None
            for node in trace["nodes"]:
                message = node["message"]
                content = message.get("content") if isinstance(message, dict) else None
                if isinstance(content, str) and len(content) >= SHARED_FROM and message.get("role") == "system":
                    node["message"] = message | {"content": {"shared": self._shared_number(out, content)}}

    def _shared_number(self, out: IO[bytes], value: Any) -> int:
        text = json.dumps(value, ensure_ascii=False)
        key = hashlib.sha256(text.encode("utf-8", "replace")).digest()
        if key not in self._shared:
            self._shared[key] = self.append(out, pack(self.masker.json(as_json(value))))
        return self._shared[key]


def pack(*parts: bytes) -> bytes:
    """JSON, in one piece or several, compressed, as text that no page reads as anything else."""
    gzip = isal_zlib.compressobj(LEVEL, wbits=31)
    packed = [gzip.compress(part) for part in parts]
    return base64.b64encode(b"".join([*packed, gzip.flush()]))


def write_page(runs: Sequence[Run], output: Path, *, max_mb: float, threshold: float = 1.0) -> Page:
    """Write the page of `runs`; returns what it left out and masked.

    Raises:
        BadInputError: a run cannot be read as traces of this schema.
    """
    page = Page(int(max_mb * 1e6))
    found = [list_run(run, number, threshold) for number, run in enumerate(runs)]
    rollouts = [rollout for one in found for rollout in one.rollouts]
    with tempfile.TemporaryFile() as chunks:
        _write_rollouts(page, chunks, by_interest(rollouts))
        index = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"), "threshold": threshold,
            "runs": [_run(run, one) for run, one in zip(runs, found, strict=True)],
            "comparisons": _comparisons([one.rated for one in found]),
            "turns": _turns([row for rollout in rollouts for row in rollout.rows]),
            "left_out": page.left_out, "cut": page.cut, "rules": [rule.name for rule in RULES],
        }  # fmt: skip
        text = page.masker.json(as_json(index))
        rows = page.masker.json(b",".join([row.settled() for rollout in rollouts for row in rollout.rows]))
        # The index of ten thousand rollouts is large, and so is each copy of its text.
        del index, rollouts, found
        packed = pack(text[:-1], b',"masked":', as_json(page.masker.counts), b',"rows":[', rows, b"]}")
        del text, rows
        title = page.masker.text(" · ".join(run.label for run in runs[:3]))
        chunks.seek(0)
        with replacing([output]) as (place,), place.open("wb") as out:
            out.write(head(packed, title=title))
            while block := chunks.read(1 << 20):
                out.write(block)
            out.write(FOOT)
    return page


def _write_rollouts(page: Page, out: IO[bytes], rollouts: list[Rollout]) -> None:
    """Write what has room; a rollout's share is as its line is of all lines that are left."""
    left, misses = sum(rollout.size for rollout in rollouts), 0
    with Progress("writing rollouts", len(rollouts), "rollouts") as progress:
        for rollout in rollouts:
            value = _read(rollout) if misses < MISSES else None
            number = None
            if value is not None:
                page.share_prompts(out, value)
                number = page.put(out, value, page.room * rollout.size / left)
            misses = 0 if number is not None else misses + 1
            left -= rollout.size
            page.left_out += number is None
            for row in rollout.rows:
                row.detail = number
            progress.add(1)


def _read(rollout: Rollout) -> dict[str, Any] | None:
    """The rollout as the page opens it; None if its line is another one by now."""
    try:
        with rollout.run.file.path.open("rb") as file:
            file.seek(rollout.start)
            return details(parse_line(file.read(rollout.size), ShownEpisode), rollout.figures)
    except (OSError, ValueError):
        return None


def _run(run: Run, found: Listing) -> dict[str, Any]:
    bands, report = Thresholds(), found.report
    sources = [source.model_dump(mode="json") for source in found.rated.sources]
    for source in sources:
        for row in source["rows"]:
            row["band"] = bands.band(row["avg_reward"])
    return {
        "label": run.label, "series": run.series, "step": run.step, "path": _shown(run.file.path), "sources": sources,
        "bands": {band: bands.describe(band) for band in Band},
        "trainable": report.summary.model_dump(mode="json"), "usable": report.usable,
        "findings": [finding.model_dump(mode="json") for finding in report.findings],
        "groups": [group.model_dump(mode="json", exclude={"run"}) for group in report.groups],
        "warnings": [
            line.replace(str(run.file.path), _shown(run.file.path)) for one in report.runs for line in one.warnings()
        ],
    }  # fmt: skip


def _shown(path: Path) -> str:
    """A path that says nothing of the machine to whoever is sent the page: from here, or from the user's home."""
    for place, name in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(place):
            return f"{name}{path.relative_to(place)}"
    return str(Path(*path.parts[-3:]))


def _turns(listed: list[Row]) -> list[dict[str, Any]]:
    """The rollouts that others went on from, with the values of their turns, as `opencode-turns tree` has them."""
    if not any(row.branch for row in listed):
        return []
    found = {row.id: Continued.of(row.id, row.task, row.branch, row.reward, row.outcome) for row in listed}
    return [trunk.model_dump(mode="json") for trunk in tree_of(found).trunks]


def _comparisons(rated: list[RateFigures]) -> list[dict[str, Any]]:
    """Pairs of runs with what differs; every pair of a few, else each with the one before it."""
    tasks = [{row.key: row for source in one.sources for row in source.rows} for one in rated]
    count = len(tasks)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if count <= MAX_COMPARED or b == a + 1]
    return [{"a": a, "b": b} | found for a, b in pairs if (found := compare(tasks[a], tasks[b])) is not None]
