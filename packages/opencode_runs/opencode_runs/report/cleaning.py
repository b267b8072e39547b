"""JSON values as text that fits: the middle of long texts left out, no number that JSON lacks."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from opencode_runs.report.masking import Masker, hints_in

CAPS = tuple(1 << power for power in range(16, 8, -1))
"""Characters of a text that are kept where not all have room, from the most generous on."""
MARGIN = 512
"""Around a cut, so that no rule misses a secret that it divides."""
CONTEXT = 256
"""Characters before a secret that a rule reads."""
_WORD = "".join(sorted({chr(code) for code in range(0x21, 0x7F)} - set("\"'\\\\")))
_CUT = "\n\0\n"
"""No rule reaches beyond it."""
MAX_DEPTH = 64
_PLAIN, _HOLDERS = frozenset((int, bool, type(None))), frozenset((dict, list, tuple))
NUMBERS = 100
"""Of a list of numbers that are kept at least."""


def as_json(value: Any) -> bytes:
    """A value as JSON; what JSON has no number for is null."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (ValueError, RecursionError):  # lone surrogates, or nested too deeply
        text = json.dumps(Cutter(Masker(), None).cut(value), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


@dataclass
class Cutter:
    """Makes values smaller; what it leaves out is said in its place, and counted."""

    masker: Masker
    cap: int | None
    """Characters of a text; None = all."""
    careful: bool = True
    """Whether a cut that may divide a secret is masked first; else `near` says where one may be."""
    left_out: int = 0
    near: list[str] = field(default_factory=list)
    """What stands before each cut's end."""

    def cut(self, value: Any, depth: int = 0) -> Any:
        """The value with long texts cut; itself where nothing of it is long."""
        kind = type(value)
        if kind is str:
            return value if self.cap is None or len(value) <= self.cap else self._middle(value, self.cap)
        if kind is float:
            return value if math.isfinite(value) else None
        if kind not in _HOLDERS:
            return value
        if depth > MAX_DEPTH:
            return "… nested too deeply"
        if kind is dict:
            changed = self._changed(value.items(), depth)
            return value | changed if changed else value
        if self.cap is not None and len(value) > NUMBERS and isinstance(value[0], int | float):
            return value[: max(NUMBERS, self.cap // 4)]
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
        if lost > tail // 2 or (self.careful and hints_in(near.encode("utf-8", "replace"))):
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
    cutter = Cutter(masker, cap, careful=False)
    found = cutter.cut(value)
    if hints_in("\n".join(cutter.near).encode("utf-8", "replace")):
        cutter = Cutter(masker, cap)
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
            elif kind in _HOLDERS and depth <= MAX_DEPTH:
                waiting.append((one, depth + 1))
    return found


def fitting_cap(found: list[int], room: float) -> int:
    """The largest cap that leaves about `room` characters of texts of these lengths."""
    many = [length for length in found if length > CAPS[-1]]
    room -= sum(found) - sum(many)
    return next((cap for cap in CAPS if sum([min(length, cap) for length in many]) <= room), CAPS[-1])
