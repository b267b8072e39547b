"""JSON values as text that fits: the middle of long texts left out, no number that JSON lacks."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opencode_runs.report.masking import Masker

CAPS = (1 << 16, 1 << 14, 1 << 12, 1 << 10, 256)
"""Characters of a text that are kept where not all have room, from the most generous on."""
MARGIN = 512
"""Around a cut, so that no rule misses a secret that it divides."""
MAX_DEPTH = 64
NUMBERS = 100
"""Of a list of numbers that are kept at least."""


def as_json(value: Any) -> str:
    """A value as JSON; what JSON has no number for is null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return as_json(Cutter(Masker(), None).cut(value))


@dataclass
class Cutter:
    """Makes values smaller; what it leaves out is said in its place, and counted."""

    masker: Masker
    cap: int | None
    """Characters of a text; None = all."""
    left_out: int = 0

    def cut(self, value: Any, depth: int = 0) -> Any:
        """The value with long texts cut."""
        if isinstance(value, str):
            return value if self.cap is None or len(value) <= self.cap else self._middle(value, self.cap)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if depth > MAX_DEPTH:
            return "… nested too deeply"
        if isinstance(value, dict):
            return {name: self.cut(one, depth + 1) for name, one in value.items()}
        if isinstance(value, list | tuple):
            if self.cap is not None and len(value) > NUMBERS and isinstance(value[0], int | float):
                return value[: max(NUMBERS, self.cap // 4)]
            return [self.cut(one, depth + 1) for one in value]
        return value

    def _middle(self, text: str, cap: int) -> str:
        head, tail = cap - cap // 3, cap // 3
        self.left_out += len(text) - cap
        begun, ended = self.masker.text(text[: head + MARGIN]), self.masker.text(text[-tail - MARGIN :])
        return f"{begun[:head]}\n… {len(text) - cap:,} characters left out …\n{ended[-tail:]}"


def fitting_cap(value: Any, room: int) -> int:
    """The largest cap that leaves about `room` characters."""
    lengths = list(_lengths(value, 0))
    return next((cap for cap in CAPS if sum(min(length, cap) for length in lengths) <= room), CAPS[-1])


def _lengths(value: Any, depth: int) -> Iterator[int]:
    if isinstance(value, str):
        yield len(value)
    elif isinstance(value, dict | list | tuple) and value and depth <= MAX_DEPTH:
        if isinstance(value, list) and isinstance(value[0], int | float):
            yield 4 * len(value)
            return
        for one in value.values() if isinstance(value, dict) else value:
            yield from _lengths(one, depth + 1)
