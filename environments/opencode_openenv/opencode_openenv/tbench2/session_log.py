"""What happened in an episode, for people: one file per session below `output_dir/TASK.EPISODE/`.

Invariant: no name that a caller gives, and no link that another user of this machine plants, leads out of that
directory, which is this user's alone; and no log grows without end. A log that cannot be written costs no step.
"""

import logging
import os
import re
from pathlib import Path

logger = logging.getLogger("verifiers.v1.opencode_openenv")
MAX_LOG_BYTES = 16 << 20
"""The most that one log may hold."""


def plain_name(text: str) -> str:
    """At most 100 characters for a file's name, of the first 1,000 of a text."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text[:1000]).strip(".-")[:100] or "unnamed"


class SessionLog:
    """The directory of one episode's logs.

    Raises:
        ValueError: it cannot be made, or is another user's.
    """

    def __init__(self, output_dir: Path, task_id: str, episode_id: str) -> None:
        self.directory = output_dir / f"{plain_name(task_id)}.{plain_name(episode_id)}"
        self._names: set[str] = set()
        self._failed = False
        try:
            output_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)
            os.close(self._opened())
        except OSError as error:
            raise ValueError(f"session logs cannot be written: {error}: set TB2_OUTPUT_DIR (output_dir)") from error

    def add(self, session: str, command: str, output: str) -> None:
        """Append what a session was told and what it printed, as long as the log is not full and can be written."""
        name = plain_name(session)
        if name not in self._names and len(self._names) >= 64:
            name = "further-sessions"
        self._names.add(name)
        text = f"$ {command[:10_000]}\n{output}" + ("" if output.endswith("\n") or not output else "\n")
        try:
            self._append(f"{name}.log", text.encode(errors="replace"))
        except OSError as error:
            if not self._failed:
                logger.warning("session logs below %s cannot be written: %s", self.directory, error)
            self._failed = True

    def _append(self, name: str, data: bytes) -> None:
        directory = self._opened()
        try:
            # Not blocking: a FIFO is refused instead of waited for.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
                if os.fstat(file.fileno()).st_size <= MAX_LOG_BYTES:
                    file.write(data)
        finally:
            os.close(directory)

    def _opened(self) -> int:
        """A descriptor of the directory.

        Raises:
            OSError: it is gone, a link, or another user's.
        """
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(directory).st_uid != os.geteuid():
            os.close(directory)
            raise PermissionError(f"{self.directory} is another user's")
        return directory
