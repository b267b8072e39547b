"""The one error of loading a dataset, and how it names things.

Every message says which file, row (counted from 1) and column it is about, and what to write instead.
"""

import difflib
import sys
from collections.abc import Iterable
from functools import cache
from types import TracebackType


class DatasetError(ValueError):
    """A dataset, file, row or column cannot be used as configured."""


@cache
def show_message_alone() -> None:
    """From now on, a `DatasetError` that ends this program is shown as its message: whoever wrote the row that it names
    learns nothing from our frames."""
    usual = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if isinstance(error, DatasetError):
            sys.stderr.write(f"{error}\n")
        else:
            usual(kind, error, frames)

    sys.excepthook = show


def nearest_name(name: str, names: Iterable[str]) -> str:
    """A sentence that lists `names` and the one nearest to `name`, for an error message."""
    known = list(names)
    if not known:
        return "there are none"
    listed = ", ".join(known[:50]) + (", …" if len(known) > 50 else "")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"there are: {listed}" + (f" (did you mean {close[0]!r}?)" if close else "")
