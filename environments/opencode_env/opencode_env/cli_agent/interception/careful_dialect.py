"""A dialect that takes what it cannot read for a malformed request.

verifiers' server answers a `ValueError` of the dialect with 400; anything else becomes a 500, of which an agent's HTTP
client thinks that trying again helps.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from verifiers.v1.dialects import Dialect
from verifiers.v1.dialects.base import RawRequest
from verifiers.v1.types import Request


@contextmanager
def reading() -> Iterator[None]:
    """Read a request.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(f"the request cannot be read: {type(error).__name__}: {error}") from None


class _Careful(Dialect[Any]):
    """A mixin before a dialect class."""

    def parse_request(self, body: RawRequest) -> Request:
        """The native request as the typed one.

        Raises:
            ValueError: it cannot be read.
        """
        with reading():
            parsed: Request = super().parse_request(body)  # type: ignore[safe-super]
        return parsed


@cache
def careful(dialect: Dialect[Any]) -> Dialect[Any]:
    """The same dialect, careful; still of its own type, by which verifiers' clients ask."""
    own = type(dialect)
    made: Dialect[Any] = type(own.__name__, (_Careful, own), {"__module__": own.__module__})()
    return made
