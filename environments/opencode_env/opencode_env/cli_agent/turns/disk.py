"""How much disk the kept turns of one process take, and which of them go when it is too much.

Invariant: bytes that several turns share by hard links count once; the last turn of a rollout stays.
"""

import logging
import os
import shutil
import sys
from collections import OrderedDict
from pathlib import Path
from threading import Lock

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")


class DiskUse:
    """The kept turns that this process has made, the oldest first.

    Args:
        folder: of all rollouts.
        most: bytes that they may take; None means no limit.
    """

    def __init__(self, folder: Path, most: int | None) -> None:
        self.folder = folder
        self.most_bytes = sys.maxsize if most is None else most
        self.used = 0
        self._turns: OrderedDict[Path, None] = OrderedDict()
        self._lock = Lock()

    def added(self, place: Path) -> None:
        """Count a kept turn, and remove the oldest ones beyond the limit (blocking)."""
        with self._lock:
            self.used += _own_bytes(place)
            self._turns[place] = None
            for old in list(self._turns):
                if self.used <= self.most_bytes:
                    return
                if any(other.parent == old.parent and other > old for other in self._turns):
                    self._remove(old)
            if self.used > self.most_bytes:
                logger.warning("the last kept turns of this process's rollouts alone have %d bytes", self.used)

    def _remove(self, place: Path) -> None:
        self.used -= _own_bytes(place)
        del self._turns[place]
        gone = place.with_name(f".{place.name}")
        place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _own_bytes(place: Path) -> int:
    """Bytes of a kept turn that no other one shares."""
    total = 0
    for folder in (place, place / "files"):
        if not folder.is_dir():
            continue
        with os.scandir(folder) as found:
            for entry in found:
                status = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and status.st_nlink == 1:
                    total += status.st_blocks * 512
    return total
