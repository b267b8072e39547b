"""What is wrong with a file of tool backends, with a backend that an agent plays with, or with an answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verifiers.v1.errors import ToolsetError


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a file: the line, the place in words, and what to change."""

    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.place}: {self.message}"


class BackendFileError(ValueError):
    """A file of tool backends cannot be used; the message has one line for each problem."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        super().__init__(path, tuple(problems))
        self.path = path
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.path} describes no tool backends:", *map(str, self.problems)])


class BrokenBackendError(ToolsetError):
    """A tool backend failed at a call. What the agent asked may have broken it, so `--env.retries` leaves it alone
    unless a rule says otherwise: else an agent could have a bad episode played again."""


MAX_ANSWER_BYTES = 8 * 1024 * 1024
TOO_LONG = f"The answer is longer than {MAX_ANSWER_BYTES} bytes; ask for less."
"""What the agent reads of a longer one: it may have asked for a file of its own making."""
