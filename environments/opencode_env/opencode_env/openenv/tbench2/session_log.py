"""What happened in an episode, for people: one file per session below `output_dir/TASK.EPISODE/`.

Invariant: no name that a caller gives leads out of that directory, and no log grows without end.
"""

import re
from pathlib import Path

MAX_LOG_BYTES = 16 << 20
"""The most that one log may hold."""

_MOST_LOGS = 64
_COMMAND_CHARS = 10_000
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


def plain_name(text: str) -> str:
    """A text as the name of a file."""
    return _NOT_PLAIN.sub("-", text).strip(".-")[:100] or "unnamed"


class SessionLog:
    """The directory of one episode's logs."""

    def __init__(self, output_dir: Path, task_id: str, episode_id: str) -> None:
        self.directory = output_dir / f"{plain_name(task_id)}.{plain_name(episode_id)}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._names: set[str] = set()

    def add(self, session: str, command: str, output: str) -> None:
        """Append what a session was told and what it printed, as long as the log is not full."""
        name = plain_name(session)
        if name not in self._names and len(self._names) >= _MOST_LOGS:
            name = "further-sessions"
        self._names.add(name)
        with (self.directory / f"{name}.log").open("a", encoding="utf-8", errors="replace") as file:
            if file.tell() > MAX_LOG_BYTES:
                return
            file.write(
                f"$ {command[:_COMMAND_CHARS]}\n{output}" + ("" if output.endswith("\n") or not output else "\n")
            )
