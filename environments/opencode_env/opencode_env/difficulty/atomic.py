"""Output files that appear whole or not at all, and never replace another unasked."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from opencode_env.difficulty.errors import BadInputError


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
def replacing(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Lend a temporary path next to each of `paths`; put them in place if the block succeeds, else remove them.

    A block that leaves a temporary path missing writes nothing to that place.

    Raises:
        BadInputError: the folder cannot be written to, or the disk is full.
    """
    finals = list(paths)
    temporaries: list[Path] = []
    try:
        temporaries.extend(map(_reserve, finals))
        yield temporaries
        for temporary, final in zip(temporaries, finals, strict=True):
            if temporary.exists():
                _sync(temporary)
                os.replace(temporary, final)
    except OSError as error:
        place = finals[0].parent if finals else Path()
        raise BadInputError(f'cannot write to "{place}": {error.strerror or error}') from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _reserve(final: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name}.", suffix=".part")
    os.close(handle)
    mask = os.umask(0)
    os.umask(mask)
    # mkstemp's 0600 would survive the rename; the result is an ordinary file of the user's.
    os.chmod(name, 0o666 & ~mask)
    return Path(name)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
