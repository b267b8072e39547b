"""How a command over runs talks: answers on stdout, warnings and progress on stderr, an exit code.

Invariant: whatever is wrong with the input ends in one line on stderr; no traceback, and no file half written.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from opencode_runs.traces.errors import INTERRUPTED, OK, CommandError

Number = TypeVar("Number", int, float)


def exit_code_of(name: str, work: Callable[[], None]) -> int:
    """Do the work of the command `name` and return the exit code."""
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except CommandError as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, say) has seen enough; what Python still flushes at exit must go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def print_answer(answer: BaseModel, text: str, *, as_json: bool) -> None:
    """Print the whole answer as JSON, or its text."""
    print(answer.model_dump_json(indent=2) if as_json else text, flush=True)  # noqa: T201


def warn(lines: Iterable[str]) -> None:
    """Print each line as a warning."""
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)  # noqa: T201


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
