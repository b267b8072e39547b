"""How much disk kept turns take: the oldest ones go beyond the limit, and never what a running rollout goes on from."""

import logging
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock

from opencode_runs.turns.kept import ANSWER_FILE, FILES
from rollout_sandbox.toolbox.kept_files import FILE_BYTES

logger = logging.getLogger("verifiers.v1.opencode_env.kept_turns")


class DiskUse:
    """The kept turns that this process made in the folder of all rollouts; they may take `most` bytes (None: any)."""

    def __init__(self, folder: Path, most: int | None) -> None:
        self.folder = folder
        self.most_bytes = sys.maxsize if most is None else most
        self.used = 0
        self.running: set[Path] = set()
        self._turns: dict[Path, bool] = {}
        self._lock = Lock()

    def added(self, place: Path, restorable: bool) -> None:
        """Count a kept turn, and remove the oldest ones beyond the limit (blocking)."""
        with self._lock:
            self.used += _own_bytes(place)
            self._turns[place] = restorable
            if self.used <= self.most_bytes:
                return
            last = {turn.parent: turn for turn, restorable in self._turns.items() if restorable}
            needed = {last[folder] for folder in last.keys() & self.running}
            for old in [turn for turn in self._turns if turn not in needed]:
                self._remove(old)
                if self.used <= self.most_bytes:
                    return
            logger.warning("the last kept turns of the running rollouts alone have %d bytes", self.used)

    def _remove(self, place: Path) -> None:
        self.used -= _own_bytes(place)
        del self._turns[place]
        gone = place.with_name(f".{place.name}")
        with suppress(OSError):  # somebody else has removed it
            place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _own_bytes(place: Path) -> int:
    """Bytes of a kept turn that no other one shares, with its folders, but for its answer, which comes later."""
    total = 0
    for folder in (place, place / FILES):
        if not folder.is_dir():
            continue
        total += max(folder.stat().st_blocks * 512, FILE_BYTES)
        with os.scandir(folder) as found:
            for entry in found:
                status = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and status.st_nlink == 1 and entry.name != ANSWER_FILE:
                    total += max(status.st_blocks * 512, FILE_BYTES)
    return total
