"""Writing the page: one pass for the figures of difficulty, one for those of a trainer and the rollouts themselves.

Memory holds a row for each try and one episode; the rollouts, compressed, wait in a temporary file until the page's
head, which stands before them, is known.
"""

import base64
import gzip
import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from opencode_runs.difficulty.figures import RateFigures, figures
from opencode_runs.difficulty.outputs import replacing
from opencode_runs.difficulty.rate import rate
from opencode_runs.difficulty.thresholds import Band, Thresholds
from opencode_runs.report.cleaning import CAPS, Cutter, as_json, fitting_cap, lengths
from opencode_runs.report.comparison import compare
from opencode_runs.report.details import details
from opencode_runs.report.masking import RULES, Masker
from opencode_runs.report.places import Run
from opencode_runs.report.record import ShownEpisode
from opencode_runs.report.rows import rows
from opencode_runs.report.template import FOOT, head
from opencode_runs.traces.reading import Reading
from opencode_runs.trainable.figures import Report
from opencode_runs.trainable.inspection import Inspection

MAX_COMPARED = 6
"""Runs of which each pair is compared; of more, neighbours are."""
FEWEST_BYTES = 2000
"""For a rollout, however many there are."""
LEVEL = 3
RATIO = 6
"""Characters that may fit into a byte of the page; more are cut before compressing is tried."""
SHARED_FROM = 2000
"""Characters from which a system prompt is kept once for all rollouts that have it."""


@dataclass
class Page:
    """A page that is being made."""

    room: int
    """Bytes for the rollouts."""
    masker: Masker = field(default_factory=Masker)
    left_out: int = 0
    """Rollouts that found no room."""
    cut: int = 0
    """Characters that were left out of long texts."""
    _written: int = 0
    _count: int = 0
    _shared: dict[bytes, int] = field(default_factory=dict)

    def put(self, out: IO[bytes], value: Any, allowed: int) -> int | None:
        """Write a rollout, cut so that it needs at most `allowed` bytes; its number, None if it does not fit."""
        found = lengths(value)
        fitting = fitting_cap(found, RATIO * allowed // 2)
        # Writing, masking and compressing cost more than cutting, so they wait for a text that may be short enough.
        whole = [None] if sum(found) <= allowed * RATIO else []
        for cap in (*whole, *dict.fromkeys((fitting, CAPS[-1]))):
            cutter = Cutter(self.masker, cap)
            text = as_json(value if cap is None else cutter.cut(value))
            if len(text) <= allowed * RATIO and len(packed := pack(self.masker.text(text))) <= allowed:
                self.cut += cutter.left_out
                return self.append(out, packed)
        self.left_out += 1
        return None

    def append(self, out: IO[bytes], packed: bytes) -> int:
        """Write a compressed value; its number."""
        out.write(b'<script type="text/plain" id="d%d">%s</script>\n' % (self._count, packed))
        self._written += len(packed)
        self._count += 1
        return self._count - 1

    def allowance(self, share: float) -> int:
        """Bytes that the next rollout may use when a `share` of all traces was read."""
        return max(FEWEST_BYTES, int(self.room * share) - self._written) if self._written < self.room else 0

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
            self._shared[key] = self.append(out, pack(self.masker.text(as_json(value))))
        return self._shared[key]


def pack(text: str) -> bytes:
    """JSON, compressed, as text that no page reads as anything else."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0))


def write_page(runs: Sequence[Run], output: Path, *, max_mb: float, threshold: float = 1.0) -> Page:
    """Write the page of `runs`; returns what it left out and masked.

    Raises:
        BadInputError: a run cannot be read as traces of this schema.
    """
    page = Page(int(max_mb * 1e6))
    total = sum(run.file.size for run in runs) or 1
    listed: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    rated: list[RateFigures] = []
    before = 0
    with tempfile.TemporaryFile() as chunks:
        for number, run in enumerate(runs):
            rated.append(figures(rate([run.file.path], threshold=threshold)))
            reading, inspection = Reading(ShownEpisode), Inspection()
            for file, episode in reading.episodes([run.file]):
                found = inspection.add(file, episode)
                value = details(episode, found)
                page.share_prompts(chunks, value)
                room = page.allowance((before + reading.bytes_read) / total)
                listed += rows(episode, found, number, page.put(chunks, value, room))
            before += run.file.size
            shown.append(_run(run, rated[-1], inspection.report(reading.runs)))
        index = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"), "threshold": threshold, "runs": shown,
            "rows": [_settled(row) for row in listed], "comparisons": _comparisons(rated),
            "left_out": page.left_out, "cut": page.cut, "rules": [rule.name for rule in RULES],
        }  # fmt: skip
        text = page.masker.text(as_json(index))
        masked = json.dumps({"masked": dict(page.masker.counts)})
        chunks.seek(0)
        with replacing([output]) as (place,), place.open("wb") as out:
            out.write(
                head(
                    pack(f"{masked[:-1]},{text[1:]}"), title=page.masker.text(" · ".join(run.label for run in runs[:3]))
                )
            )
            while block := chunks.read(1 << 20):
                out.write(block)
            out.write(FOOT)
    return page


def _run(run: Run, rated: RateFigures, report: Report) -> dict[str, Any]:
    bands = Thresholds()
    sources = [source.model_dump(mode="json") for source in rated.sources]
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


def _settled(row: dict[str, Any]) -> dict[str, Any]:
    """The row with what a trainer makes of its trace, which is known once the whole group was read."""
    found = row.pop("trace", None)
    if found is not None:
        row |= {"advantage": found.advantage, "unused": found.unused_because, "trained": found.trained_tokens}
    return row


def _comparisons(rated: list[RateFigures]) -> list[dict[str, Any]]:
    """Pairs of runs with what differs; every pair of a few, else each with the one before it."""
    tasks = [{row.key: row for source in one.sources for row in source.rows} for one in rated]
    count = len(tasks)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if count <= MAX_COMPARED or b == a + 1]
    return [{"a": a, "b": b} | found for a, b in pairs if (found := compare(tasks[a], tasks[b])) is not None]
