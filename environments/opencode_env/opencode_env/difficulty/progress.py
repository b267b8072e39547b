"""A progress line on stderr for work that takes longer than a moment.

On a terminal the line is redrawn in place; elsewhere (a log) it is one line every few seconds. Nothing is printed
for work that ends at once, and nothing ever goes to stdout.
"""

import sys
import time
from types import TracebackType
from typing import Self, TextIO

QUIET_SECONDS = 2.0
"""Work shorter than this prints nothing."""
REDRAW_SECONDS = 0.2
LOG_SECONDS = 10.0


class Progress:
    """Counts work done of `total` units and prints a line now and then."""

    def __init__(self, label: str, total: int, unit: str, *, scale: float = 1.0, out: TextIO | None = None) -> None:
        """A `total` of 0 is unknown. Counts are divided by `scale` and shown in `unit` (bytes by 1e6: "MB")."""
        self._label, self._total, self._unit, self._scale = label, total, unit, scale
        self._out = sys.stderr if out is None else out
        self._tty = self._out.isatty()
        self._start = time.monotonic()
        self._next = self._start + QUIET_SECONDS
        self._done = 0
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._drawn and self._tty:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def add(self, units: int) -> None:
        """Count `units` more as done."""
        self._done += units
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (REDRAW_SECONDS if self._tty else LOG_SECONDS)
            self._draw(now - self._start)

    def _draw(self, seconds: float) -> None:
        share = f" {min(self._done / self._total, 1):4.0%}" if self._total else ""
        done, rate = self._done / self._scale, self._done / self._scale / seconds
        line = f"{self._label}{share}  {done:,.0f} {self._unit}  {rate:,.0f} {self._unit}/s"
        self._out.write(f"\r{line}\x1b[K" if self._tty else f"{line}\n")
        self._out.flush()
        self._drawn = True
