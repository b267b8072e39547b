"""How a command over runs talks: answers on stdout, warnings and progress on stderr, whole files, an exit code.

Whatever is wrong with the input ends in one line on stderr; no traceback, and no file half written. What an agent or a
row made, such as a tool's output or a task's id, does nothing to the terminal: `say` prints it.
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from pydantic import BaseModel

from opencode_runs.errors import BadInputError, CommandError

OK, INTERRUPTED = 0, 130
"""Exit codes: answered; Ctrl-C."""


Number = TypeVar("Number", int, float)
_CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""What begins an escape sequence, goes back over a line or reverses text; not tabs and ends of lines."""


def printable(text: str) -> str:
    """A text whose control characters are replaced, one by one."""
    return _CONTROLS.sub("\ufffd", text)


def in_one_line(text: str) -> str:
    """A printable text without ends of lines, and with one space where there is any."""
    return " ".join(printable(text).split())


def printable_json(text: str) -> str:
    """JSON whose control characters are escaped, so that its texts stay what they are."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, file: TextIO | None = None) -> None:
    """Print what may hold texts of an agent's or a row's; on stdout if no file is given."""
    encoding = getattr(file or sys.stdout, "encoding", None) or "utf-8"
    print(printable(text).encode(encoding, "replace").decode(encoding), file=file, flush=True)


def exit_code_of(name: str, work: Callable[[], None]) -> int:
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

Prices = tuple[float, float, float]
"""Dollars for a million tokens: read anew, read from a cache, and sampled."""


def prices_of(given: str | Sequence[float]) -> Prices:
    """Three prices, as numbers or as one text with commas.

    Raises:
        ValueError: they are not three, or one is negative or too large.
    """
    try:
        fresh, cached, sampled = map(float, given.split(",") if isinstance(given, str) else given)
    except (TypeError, ValueError):
        raise ValueError(f'{given!r} is not three numbers such as "0.25,0.025,2"') from None
    if not all(0 <= price < 1e6 for price in (fresh, cached, sampled)):
        raise ValueError(f"{given!r} has a price that is negative or too large")
    return fresh, cached, sampled


LABEL_WIDTH = 40


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in (header, *rows)
    )


def number(value: float | None, form: str, none: str = "-") -> str:
    """A number in a form of Python's (".2f"), or `none` where there is none."""
    return none if value is None else f"{value:{form}}"


def short(text: str) -> str:
    """A label that fits a column and its line; a content hash keeps its beginning."""
    text = " ".join(text.split())
    if re.fullmatch("[0-9a-f]{64}", text):
        return text[:12]
    return textwrap.shorten(text, LABEL_WIDTH, placeholder="…") if len(text) > LABEL_WIDTH else text


def task_label(key: str, called: str | None) -> str:
    """Return how a task is called in tables: its id, name or prompt, and its key if that is something else."""
    if not called:
        return short(key)
    return short(called) if called == key else f"{short(called)} ({short(key)})"


def check_output(path: Path, *, force: bool) -> None:
    """Refuse, before any work is done, an output that exists (unless `force`) or cannot be written there.

    Raises:
        BadInputError: the file exists, its folder does not, or its path is a folder.
    """
    if path.is_dir():
        raise BadInputError(f'output "{path}" is a folder: name a file')
    if not path.parent.is_dir():
        raise BadInputError(f'output folder "{path.parent}" does not exist')
    if path.exists() and not force:
        raise BadInputError(f'output "{path}" exists: name another file, or replace it with --force')


@contextlib.contextmanager
def replacing(finals: Iterable[Path]) -> Iterator[list[Path]]:
    """Lend a temporary path next to each of `finals`; put them in place if the block succeeds, else remove them.

    Raises:
        BadInputError: the folder cannot be written to, or the disk is full.
    """
    pairs: list[tuple[Path, Path]] = []
    place = Path()
    try:
        for final in finals:
            place = final.parent
            handle, name = tempfile.mkstemp(dir=place, prefix=f".{final.name}.", suffix=".part")
            pairs.append((Path(name), final))
            mask = os.umask(0)
            os.umask(mask)
            # mkstemp's 0600 would survive the rename; the result is an ordinary file of the user's.
            os.fchmod(handle, 0o666 & ~mask)
            os.close(handle)
        yield [temporary for temporary, _ in pairs]
        for temporary, final in pairs:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(final)
    except OSError as error:
        raise BadInputError(f'cannot write to "{place}": {error.strerror or error}') from error
    finally:
        for temporary, _ in pairs:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def drawing(path: Path) -> Iterator[Any]:
    """Lend matplotlib's axes of a figure; it is written as a PNG if the block succeeds.

    Raises:
        BadInputError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        figure = import_module("matplotlib.figure").Figure(figsize=(8, 4.5), layout="constrained")
    except ImportError:
        raise BadInputError("--png needs matplotlib: install opencode-runs[plot]") from None
    yield figure.add_subplot()
    with replacing([path]) as (temporary,):
        figure.savefig(temporary, format="png")
