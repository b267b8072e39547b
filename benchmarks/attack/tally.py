"""What an attack came to, as the lines that it prints: `ATTACK {"peak": …, "tries": …, "refused": …, "error": …}`.

The peak is also the name of the process, `held` and a hexadecimal number, for whoever watches from outside: an attack
that is killed at a limit, with its agent, prints nothing any more.
"""

import ctypes
import json
import time

_PR_SET_NAME = 15


class Tally:
    """What the attack came to."""

    def __init__(self) -> None:
        self.peak = self.tries = self.refused = 0
        self.error = ""
        self._libc = ctypes.CDLL(None)
        self._printed = time.monotonic()

    def held(self, amount: int) -> None:
        """So much is held now."""
        if amount > self.peak:
            self.peak = amount
            self._libc.prctl(_PR_SET_NAME, f"held{amount:x}".encode(), 0, 0, 0)
        if time.monotonic() > self._printed + 1:
            self.print()

    def print(self) -> None:
        """The report so far."""
        self._printed = time.monotonic()
        report = {"peak": self.peak, "tries": self.tries, "refused": self.refused, "error": self.error}
        print("ATTACK", json.dumps(report), flush=True)

    def refuse(self, error: object) -> None:
        """The sandbox or the host said no."""
        self.refused += 1
        self.error = self.error or str(error)[:200]
