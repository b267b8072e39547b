"""What happened in an episode, for people: one file per session below `output_dir/TASK.EPISODE/`.

Invariant: no name that a caller gives leads out of that directory.
"""

import re
from pathlib import Path

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


def plain_name(text: str) -> str:
    """A text as the name of a file."""
    return _NOT_PLAIN.sub("-", text).strip(".-")[:100] or "unnamed"


class SessionLog:
    """The directory of one episode's logs."""

    def __init__(self, output_dir: Path, task_id: str, episode_id: str) -> None:
        self.directory = output_dir / f"{plain_name(task_id)}.{plain_name(episode_id)}"
        self.directory.mkdir(parents=True, exist_ok=True)

    def add(self, session: str, command: str, output: str) -> None:
        """Append what a session was told and what it printed."""
        with (self.directory / f"{plain_name(session)}.log").open("a", encoding="utf-8") as file:
            file.write(f"$ {command}\n{output}" + ("" if output.endswith("\n") or not output else "\n"))
