"""JSON values made fit for the page: masked, long text cut in its middle, no number that JSON lacks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opencode_runs.report.masking import Masker

CAPS = (1 << 20, 1 << 16, 1 << 14, 1 << 12, 1 << 10, 256)
"""Characters of a text that are kept, from the most generous on."""
MARGIN = 512
"""Around a cut, so that no rule misses a secret that it divides."""
MAX_DEPTH = 64
ROOM = 3
"""Characters of text for each byte that may be used: what compression gives at least."""


@dataclass
class Cleaner:
    """Cleans the values of one rollout."""

    masker: Masker
    cap: int = CAPS[0]
    cut: int = 0
    """Characters that were left out."""

    def clean(self, value: Any, depth: int = 0) -> Any:
        """The value as it is shown."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if depth > MAX_DEPTH:
            return "… nested too deeply"
        if isinstance(value, dict):
            named = self.masker.named
            return {self.text(str(key)): self.clean(named(str(key), one), depth + 1) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(one, depth + 1) for one in value]
        return value

    def text(self, text: str) -> str:
        """Masked, its middle left out if it is longer than `cap`."""
        if len(text) <= self.cap:
            return self.masker.text(text)
        head, tail = self.cap - self.cap // 3, self.cap // 3
        self.cut += len(text) - self.cap
        begun, ended = self.masker.text(text[: head + MARGIN]), self.masker.text(text[-tail - MARGIN :])
        return f"{begun[:head]}\n… {len(text) - self.cap:,} characters left out …\n{ended[-tail:]}"


def fitting_cap(value: Any, room: int) -> int:
    """The largest cap with which the texts of a value have about `room` bytes once compressed."""
    lengths = list(_lengths(value, 0))
    for cap in CAPS:
        if sum(min(length, cap) for length in lengths) <= room * ROOM:
            return cap
    return CAPS[-1]


def _lengths(value: Any, depth: int) -> Iterator[int]:
    if isinstance(value, str):
        yield len(value)
    elif isinstance(value, dict | list | tuple) and depth <= MAX_DEPTH:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _lengths(one, depth + 1)
