"""How a command over runs talks: answers on stdout, warnings and progress on stderr, an exit code.

Invariants: whatever is wrong with the input ends in one line on stderr; no traceback, and no file half written. What
an agent or a row made, such as a tool's output or a task's id, does nothing to the terminal: `say` prints it.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TextIO, TypeVar

from pydantic import BaseModel

from opencode_runs.traces.errors import INTERRUPTED, OK, CommandError

Number = TypeVar("Number", int, float)
_CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""What begins an escape sequence, goes back over a line or turns text around; not tabs and ends of lines."""


def printable(text: str) -> str:
    """A text whose control characters are replaced, one by one."""
    return _CONTROLS.sub("\ufffd", text)


def printable_json(text: str) -> str:
    """The same for JSON, whose texts stay what they are: control characters are escaped."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, file: TextIO | None = None) -> None:
    """Print what may hold texts of an agent's or a row's; on stdout if no file is given."""
    encoding = getattr(file or sys.stdout, "encoding", None) or "utf-8"
    print(printable(text).encode(encoding, "replace").decode(encoding), file=file, flush=True)


def exit_code_of(name: str, work: Callable[[], None]) -> int:
    """Do the work of the command `name` and return the exit code."""
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except CommandError as error:
        say(f"{name}: {error}", sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, say) has seen enough; what Python still flushes at exit must go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def print_answer(answer: BaseModel, text: str, *, as_json: bool) -> None:
    """Print the whole answer as JSON, or its text."""
    if as_json:
        print(printable_json(answer.model_dump_json(indent=2)), flush=True)  # noqa: T201
    else:
        say(text)


def warn(lines: Iterable[str]) -> None:
    """Print each line as a warning."""
    for line in lines:
        say(f"warning: {line}", sys.stderr)


class Parser(argparse.ArgumentParser):
    """Errors of usage are one line; descriptions and examples keep their lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def checked(kind: type[Number], fits: Callable[[Number], bool], problem: str) -> Callable[[str], Number]:
    """The type of an option: a number that fits, or else a sentence about the problem."""

    def parsed(text: str) -> Number:
        value = kind(text)
        if not fits(value):
            raise argparse.ArgumentTypeError(f"{text!r} {problem}")
        return value

    parsed.__name__ = "number"
    return parsed


whole = checked(int, lambda value: value >= 0, "is negative")
positive = checked(int, lambda value: value > 0, "is not positive")
