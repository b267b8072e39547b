"""How much a test plays: a short form in `make test`, the whole in `make test-whole` (which sets `WHOLE`)."""

import os
from typing import TypeVar

T = TypeVar("T")

WHOLE = bool(os.environ.get("WHOLE"))


def size(usual: T, whole: T) -> T:
    """The size of this run."""
    return whole if WHOLE else usual
