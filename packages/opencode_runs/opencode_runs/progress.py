"""A progress line on stderr for work that takes longer than a moment.

On a terminal tqdm's line is redrawn in place; elsewhere (a log) it is one line every few seconds. Nothing is printed
for work that ends at once, and nothing ever goes to stdout. A module of its own: tqdm reads all variables as it is
imported, which no evaluation needs.
"""

import sys
from threading import RLock
from typing import TextIO

from tqdm import tqdm

QUIET_SECONDS = 2.0
"""Work shorter than this prints nothing."""
REDRAW_SECONDS = 0.2
LOG_SECONDS = 10.0


class Progress(tqdm):
    """Counts work done of `total` units and prints a line now and then."""

    monitor_interval = 0  # No thread: a line is printed when work is done.

    def __init__(self, label: str, total: int, unit: str, *, scale: float = 1.0, out: TextIO | None = None) -> None:
        """A `total` of 0 is unknown. Counts are divided by `scale` and shown in `unit` (bytes by 1e6: "MB")."""
        share = " {percentage:3.0f}%" if total else ""
        super().__init__(
            desc=label, total=total or None, unit=unit, unit_scale=1 / scale, file=out or sys.stderr, leave=False,
            bar_format="{desc}" + share + "  {n:,.0f} {unit}  {rate_noinv_fmt}",
            # Above 0, so that nothing is drawn before the first work is done.
            delay=QUIET_SECONDS or 1e-9, mininterval=0, miniters=1, smoothing=0,
        )  # fmt: skip

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Print the line; tqdm calls this, also with no text to remove it."""
        terminal = self.fp.isatty()
        self.mininterval = REDRAW_SECONDS if terminal else LOG_SECONDS
        line = str(self) if msg is None else msg
        if line or terminal:
            self.fp.write(f"\r{line}\x1b[K" if terminal else f"{line}\n")
            self.fp.flush()
        return False


# tqdm's own lock is one between processes, for which it imports multiprocessing.
Progress.set_lock(RLock())
