"""A rollout as bytes of the page: what is shown of it, masked, its long texts cut so that it has room, compressed.

Rollouts are packed in batches, each by itself: how much room a batch has follows from what was written a while before,
so that batches can be packed side by side, and any number of processes writes the same page.
"""

import base64
import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from isal import isal_zlib
from pydantic_core import to_json

from opencode_runs.errors import BrokenGraphError
from opencode_runs.report.masking import Masker, holds_hint
from opencode_runs.traces.record import (
    PER_SAMPLED,
    CallRecord,
    HistoryRecord,
    SampleKind,
    TokenNode,
    TraceRecord,
    parse_line,
)
from opencode_runs.trainable.findings import TraceFigures
from opencode_runs.trainable.samples import branch_paths, recorded_parts, trained_branches

CAPS = tuple(1 << power for power in range(16, 8, -1))
"""Characters of a text that are kept where not all have room, from the most generous on."""
MARGIN = 512
"""Around a cut, so that no rule misses a secret that it divides."""
CONTEXT = 256
"""Characters before a secret that a rule reads."""
_WORD = "".join(sorted({chr(code) for code in range(0x21, 0x7F)} - set("\"'\\\\")))
_CUT = "\n\0\n"
"""No rule reaches beyond it."""
_MAX_DEPTH = 64
_PLAIN, _HOLDERS = frozenset((int, bool, type(None))), frozenset((dict, list, tuple))
_NUMBERS = 100
"""Of a list of numbers that are kept at least."""


def as_json(value: Any) -> bytes:
    """A value as JSON; what JSON has no number for is null."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (ValueError, RecursionError):  # lone surrogates, or nested too deeply
        text = json.dumps(ValueShortener(Masker(), None).cut(value), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


@dataclass
class ValueShortener:
    """Makes values smaller; what it leaves out is said in its place, and counted."""

    masker: Masker
    cap: int | None
    """Characters of a text; None = all."""
    careful: bool = True
    """Whether a cut that may divide a secret is masked first; else `near` says where one may be."""
    left_out: int = 0
    near: list[str] = field(default_factory=list)

    def cut(self, value: Any, depth: int = 0) -> Any:
        """The value with long texts cut; itself where nothing of it is long."""
        kind = type(value)
        if kind is str:
            return value if self.cap is None or len(value) <= self.cap else self._middle(value, self.cap)
        if kind is float:
            return value if math.isfinite(value) else None
        if kind not in _HOLDERS:
            return value
        if depth > _MAX_DEPTH:
            return "… nested too deeply"
        if kind is dict:
            changed = self._changed(value.items(), depth)
            return value | changed if changed else value
        if self.cap is not None and len(value) > _NUMBERS and isinstance(value[0], int | float):
            return value[: max(_NUMBERS, self.cap // 4)]
        changed = self._changed(enumerate(value), depth)
        return [changed.get(number, one) for number, one in enumerate(value)] if changed else value

    def _changed(self, parts: Iterable[tuple[Any, Any]], depth: int) -> dict[Any, Any]:
        short = math.inf if self.cap is None else self.cap
        changed = {}
        for name, one in parts:
            kind = type(one)
            if kind in _PLAIN or (kind is str and len(one) <= short):
                continue
            if (cut := self.cut(one, depth + 1)) is not one:
                changed[name] = cut
        return changed

    def _middle(self, text: str, cap: int) -> str:
        head, tail = cap - cap // 3, cap // 3
        # A word that a cut divides is left out whole; then only what a rule reads before its secret may be missing.
        begun, ended = text[:head].rstrip(_WORD), text[-tail:].lstrip(_WORD)
        lost, before = max(head - len(begun), tail - len(ended)), len(text) - len(ended)
        near = text[before - CONTEXT : before]
        self.near.append(near)
        if lost > tail // 2 or (self.careful and holds_hint(near.encode("utf-8", "replace"))):
            around = f"{text[: head + MARGIN]}{_CUT}{text[-tail - MARGIN :]}"
            begun, _, ended = self.masker.text(around).rpartition(_CUT)
            begun, ended = begun[:head], ended[-tail:]
        left_out = len(text) - len(begun) - len(ended)
        self.left_out += left_out
        return f"{begun}\n… {left_out:,} characters left out …\n{ended}"


def cut_masked(value: Any, masker: Masker, cap: int) -> tuple[Any, int]:
    """A value cut so that no secret is divided, and how many characters were left out.

    Mostly there is no sign of a secret near any of the cuts, which is seen at once for all of them.
    """
    cutter = ValueShortener(masker, cap, careful=False)
    found = cutter.cut(value)
    if holds_hint("\n".join(cutter.near).encode("utf-8", "replace")):
        cutter = ValueShortener(masker, cap)
        found = cutter.cut(value)
    return found, cutter.left_out


def lengths(value: Any) -> list[int]:
    """Characters of each text and list of numbers in a value, about."""
    found, waiting = [], [(value, 0)]
    while waiting:
        holder, depth = waiting.pop()
        if type(holder) is list and holder and type(holder[0]) in (int, float):
            found.append(4 * len(holder))
            continue
        for one in holder.values() if type(holder) is dict else holder:
            kind = type(one)
            if kind is str:
                found.append(len(one))
            elif kind in _HOLDERS and depth <= _MAX_DEPTH:
                waiting.append((one, depth + 1))
    return found


def fitting_cap(found: list[int], room: float) -> int:
    """The largest cap that leaves about `room` characters of texts of these lengths."""
    many = [length for length in found if length > CAPS[-1]]
    room -= sum(found) - sum(many)
    return next((cap for cap in CAPS if sum([min(length, cap) for length in many]) <= room), CAPS[-1])


LEVEL = 1
RATIO = 2.5
"""Characters that fit into a byte of the page, until it is known better."""
MOST = 4
"""A rollout gets at most this part of the room that is left, however much it needs."""
SHARED_FROM = 2000
"""Characters from which a system prompt is kept once for all rollouts that have it."""
_MAX_TOKENS = 20_000
"""Of a trace whose tokens are shown one by one."""
_ELSEWHERE = {"run", "episode", "trace", "task", "group", "advantage", "errors"}
_TRAINER = [one.name for one in fields(TraceFigures) if one.name not in _ELSEWHERE]


@dataclass(slots=True)
class SpaceLeft:
    """Holds what is left for the rollouts that are not written yet."""

    free: int
    """Bytes of the page."""
    lines: int
    """Bytes of their lines."""
    ratio: float = RATIO

    def has(self, size: int, *, modest: bool) -> bool:
        """Whether a rollout of so many bytes finds room; one that is not modest gets a part of what is left at most."""
        return size <= (self.free if modest else self.free // MOST)

    def learn(self, ratio: float) -> None:
        """Take into account how many characters a byte of a rollout held."""
        self.ratio += (ratio - self.ratio) / 8


class LineToPack(NamedTuple):
    """Holds what a packer needs of a rollout, which may be in another process: where its line stands, and what is
    known."""

    file: Path
    start: int
    size: int
    ids: list[str]
    figures: list[TraceFigures]


class Batch(NamedTuple):
    """Rollouts to pack, and what is left for them and all that follow."""

    places: list[LineToPack]
    room: SpaceLeft


class PackedText(NamedTuple):
    text: bytes
    masked: Counter[str]
    cut: int = 0
    """Characters that were left out."""


@dataclass(slots=True)
class PackedRollout:
    """A rollout that was packed."""

    rollout: PackedText | None = None
    """None if it has no room, or its line is another one by now."""
    shared: dict[str, PackedText] = field(default_factory=dict)
    """What it holds that other rollouts hold too, by its name, if this packer met it for the first time."""
    modest: bool = False
    """Whether it needs no more than its share."""
    ratios: list[float] = field(default_factory=list)


def pack(*parts: bytes) -> bytes:
    """JSON, in one piece or several, compressed, as text that no page reads as anything else."""
    gzip = isal_zlib.compressobj(LEVEL, wbits=31)
    packed = [gzip.compress(part) for part in parts]
    return base64.b64encode(b"".join([*packed, gzip.flush()]))


class Packer:
    def __init__(self) -> None:
        self._met: set[str] = set()

    def write(self, batch: Batch) -> list[PackedRollout]:
        """Read the rollouts of a batch again, and pack each with its share of the room, as its line is of all lines."""
        room, found = replace(batch.room), []
        for place in batch.places:
            written = PackedRollout()
            found.append(written)
            if (value := _read(place)) is not None:
                written.shared = self._share_prompts(value)
                _pack(value, room, room.free * place.size / room.lines, written)
                room.free -= len(written.rollout.text) if written.rollout else 0
            room.lines -= place.size
        return found

    def _share_prompts(self, value: dict[str, Any]) -> dict[str, PackedText]:
        """Replace long system prompts and tool lists by the name of the one copy that the page has."""
        found: dict[str, PackedText] = {}
        for trace in value["traces"]:
            trace["tools"] = self._shared(found, trace["tools"]) if trace["tools"] else None
            for node in trace["nodes"]:
                message = node["message"]
                content = message.get("content") if isinstance(message, dict) else None
                if isinstance(content, str) and len(content) >= SHARED_FROM and message.get("role") == "system":
                    node["message"] = message | {"content": {"shared": self._shared(found, content)}}
        return found

    def _shared(self, found: dict[str, PackedText], value: Any) -> str:
        text = json.dumps(value, ensure_ascii=False)
        name = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
        if name not in self._met:
            self._met.add(name)
            masker = Masker()
            found[name] = PackedText(pack(masker.json(as_json(value))), masker.counts)
        return name


def _pack(value: Any, room: SpaceLeft, share: float, written: PackedRollout) -> None:
    """Pack a rollout, its long texts cut so that it needs about `share` bytes.

    What needs more with the shortest texts gets it, if there is enough room.
    """
    found = lengths(value)
    cap = None if sum(found) <= share * room.ratio else fitting_cap(found, share * room.ratio)
    while True:
        masker = Masker()
        small, left_out = (value, 0) if cap is None else cut_masked(value, masker, cap)
        packed = pack(masker.json(as_json(small)))
        ratio = (sum(found) if cap is None else sum([min(length, cap) for length in found])) / len(packed)
        room.learn(ratio)
        written.ratios.append(ratio)
        written.modest = len(packed) <= share
        if written.modest or cap == CAPS[-1]:
            found_room = room.has(len(packed), modest=written.modest)
            written.rollout = PackedText(packed, masker.counts, left_out) if found_room else None
            return
        shorter = CAPS[0] if cap is None else CAPS[CAPS.index(cap) + 1]
        cap = min(shorter, fitting_cap(found, ratio * share))


def _read(place: LineToPack) -> dict[str, Any] | None:
    """The rollout as the page opens it; None if its line is another one by now."""
    try:
        with place.file.open("rb") as file:
            file.seek(place.start)
            episode = parse_line(file.read(place.size))
        if not {episode.id, *(trace.id for trace in episode.traces)}.issuperset(place.ids):
            return None
        data = episode.task_data if isinstance(episode.task_data, dict) else {}
        return {
            "id": episode.id, "env": episode.env, "run": episode.run, "group": episode.group_id,
            "task": {"key": episode.task_key, "hash": episode.task_hash, "data": data},
            "ok": episode.ok, "errors": [error.model_dump() for error in episode.errors],
            "traces": [_trace(trace, found) for trace, found in zip(episode.traces, place.figures, strict=True)],
        }  # fmt: skip
    except (OSError, ValueError):
        return None


def _trace(trace: TraceRecord, figures: TraceFigures) -> dict[str, Any]:
    paths: list[tuple[int, ...]] = []
    samples: list[dict[str, Any]] = []
    stories: list[list[dict[str, Any]]] = []
    try:
        paths = branch_paths(trace)
        for found in trained_branches(trace, paths):
            tokens, trained = trace.tokens_of(found.path, found.trains)
            sample = {"branch": found.branch, "trains": found.trains, "trained": trained, "tokens": tokens}
            samples.append(sample | {"kind": found.kind})
        stories = _stories(trace, paths)
    except BrokenGraphError:
        pass  # The findings say so; the messages are shown in their order.
    room = _MAX_TOKENS
    nodes = []
    for node in trace.nodes:
        nodes.append(_node(node, shown=room > 0))
        room -= len(node.token_ids)
    offered: Any = trace.tools or next((node.tools for node in trace.nodes if node.tools), [])
    tools = [tool for tool in offered if isinstance(tool, dict)] if isinstance(offered, list) else []
    info = trace.info
    if isinstance(info, dict):
        info = {name: value for name, value in info.items() if name != "logprobs"}  # which stand in `kept`
    return {
        "id": trace.id, "seat": trace.seat, "model": trace.model, "ok": trace.ok, "verifiers": trace.verifiers,
        "harness": trace.harness, "runtime": trace.runtime, "sampling": trace.sampling_text,
        "stop": trace.stop_condition, "dropped": trace.dropped, "reward": trace.reward,
        "rewards": {name: reward.model_dump() if reward else None for name, reward in trace.rewards.items()},
        "metrics": trace.metrics, "info": info, "timing": trace.timing,
        "errors": [error.model_dump() for error in trace.errors],
        "tools": [{"name": tool.get("name"), "description": tool.get("description")} for tool in tools],
        "calls": [_call(call) for call in trace.calls], "nodes": nodes,
        "paths": paths, "samples": samples, "stories": stories,
        "kept": [kept.model_dump() for kept in trace.kept or ()],
        "wrong_types": trace.wrong_types or None,
        "trainer": {name: getattr(figures, name) for name in _TRAINER},
    }  # fmt: skip


def _stories(trace: TraceRecord, paths: list[tuple[int, ...]]) -> list[list[dict[str, Any]]]:
    """Return the sections of each conversation that was compacted, and the summaries between them, in their order: each
    one's branch, and its messages that stand in none before it. A summary of another seat's model has no branch of its
    own: it is what its section begins with."""
    history = HistoryRecord.of(trace.info)
    told: dict[str, list[dict[str, Any]]] = {}
    shown: dict[str, set[int]] = {}
    elsewhere = {number for number, summary in enumerate(history.summaries) if summary.node is None}
    for part in sorted(recorded_parts(trace), key=lambda part: part.answers):
        branch = next((at for at, path in enumerate(paths) if part.answers and part.answers[-1] in path), None)
        if branch is None:
            continue
        kind = history.sections if part.kind is SampleKind.SECTION else history.summaries
        conversation = kind[part.number].conversation
        seen = shown.setdefault(conversation, set())
        nodes = [number for number in paths[branch] if number not in seen]
        seen.update(nodes)
        story = told.setdefault(conversation, [])
        if part.kind is SampleKind.SECTION and history.sections[part.number].summary in elsewhere:
            copy = next((number for number in paths[branch] if _is_copy(trace.nodes[number])), -1)
            begun = [number for number in nodes if number <= copy]
            story.append({"kind": SampleKind.SUMMARY, "branch": branch, "nodes": begun})
            nodes = nodes[len(begun) :]
        story.append({"kind": part.kind, "branch": branch, "nodes": nodes})
    return list(told.values())


def _is_copy(node: TokenNode) -> bool:
    """Whether a message of a prompt says what a model said elsewhere."""
    return not node.sampled and isinstance(node.message, dict) and node.message.get("role") == "assistant"


def _call(call: CallRecord) -> dict[str, Any]:
    usage = call.usage
    return {
        "node": call.node, "model": call.model, "start": call.start, "end": call.end, "finish": call.finish_reason,
        "in": usage.input_tokens if usage else None, "cached": usage.cached_input_tokens if usage else None,
        "out": usage.completion_tokens if usage else None, "error": call.error, "endpoint": call.endpoint,
        "sampling": call.sampling,
    }  # fmt: skip


def _node(node: TokenNode, *, shown: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"parent": node.parent, "sampled": node.sampled, "message": node.message}
    found["at"] = node.timestamp
    if node.token_ids:
        found["count"], found["trained"] = len(node.token_ids), node.trained
        if shown:
            found["tokens"] = node.token_ids
            # How many tokens in a row do not train, then do, and so on.
            stretches = [len(list(same)) for _, same in itertools.groupby(node.mask)]
            found["mask"] = [0, *stretches] if node.mask and node.mask[0] else stretches
            found["logprobs"] = np.round(np.array(node.logprobs, dtype=float), 3).tolist()
            for name in PER_SAMPLED:
                if (values := getattr(node, name)) is not None:
                    found[name] = values
    return found
