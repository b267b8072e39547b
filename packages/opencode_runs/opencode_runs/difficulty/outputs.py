"""Output files that appear whole or not at all, and never replace another unasked."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from opencode_runs.traces.errors import BadInputError


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
