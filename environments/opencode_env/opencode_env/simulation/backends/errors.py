"""What is wrong with a file of tool backends."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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
