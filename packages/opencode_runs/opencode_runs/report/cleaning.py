"""JSON values as text that fits: masked, the middle of long texts left out, no number that JSON lacks."""

import json
import math
from dataclasses import dataclass
from typing import Any

from opencode_runs.report.masking import Masker

CAPS = (1 << 16, 1 << 14, 1 << 12, 1 << 10, 256)
"""Characters of a text that are kept where not all have room, from the most generous on."""
MARGIN = 512
"""Around a cut, so that no rule misses a secret that it divides."""
MAX_DEPTH = 64
MAX_NUMBERS = 4000
"""Of a list of numbers where not all have room."""


def as_json(value: Any, masker: Masker) -> str:
    """A value as JSON, masked."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        # A number that JSON lacks, or endless nesting.
        return as_json(Cutter(masker, None).cut(value), masker)
    return masker.text(text)


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
            if self.cap is not None and len(value) > MAX_NUMBERS and isinstance(value[0], int | float):
                value = value[:MAX_NUMBERS]
            return [self.cut(one, depth + 1) for one in value]
        return value

    def _middle(self, text: str, cap: int) -> str:
        head, tail = cap - cap // 3, cap // 3
        self.left_out += len(text) - cap
        begun, ended = self.masker.text(text[: head + MARGIN]), self.masker.text(text[-tail - MARGIN :])
        return f"{begun[:head]}\n… {len(text) - cap:,} characters left out …\n{ended[-tail:]}"
