"""The one error of loading a dataset, and how it names things.

Every message says which file, row (counted from 1) and column it is about, and what to write instead.
"""

import difflib
from collections.abc import Iterable


class DatasetError(ValueError):
    """A dataset, file, row or column cannot be used as configured."""


def nearest_name(name: str, names: Iterable[str]) -> str:
    """A sentence that lists `names` and the one nearest to `name`, for an error message."""
    known = list(names)
    if not known:
        return "there are none"
    listed = ", ".join(known[:50]) + (", …" if len(known) > 50 else "")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"there are: {listed}" + (f" (did you mean {close[0]!r}?)" if close else "")
