"""JSON as JavaScript reads and writes it: what becomes of a text that goes through `JSON.parse` and `JSON.stringify`.

Every number is a double, so 5000.0 is 5000 and big integers are rounded; what is too large for one is written as null,
and -0 as 0. Of duplicate keys the last one counts. NaN and Infinity are not JSON.
"""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

_SPACE = " \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
JAVASCRIPT_SPACE = f"{_SPACE}\u205f\u3000\ufeff"
"""What `String.prototype.trim` takes off."""

_LONGEST_NUMBER = 400
"""Digits after which a number is too large, or its last digits no longer count."""

MOST_COMMAS = 20_000
"""In a text of more, nothing is read: an agent's could hold a loop, and no answer of 32,000 tokens has as many."""


def _number(text: str) -> float | None:
    number = float(text)
    return number + 0.0 if math.isfinite(number) else None


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_no_json)


def _bounded(text: str) -> str:
    if text.count(",") > MOST_COMMAS:
        raise ValueError("more values than are read here")
    return text


def parse(text: str) -> Any:
    """The value that JavaScript reads, as it would write it.

    Raises:
        ValueError: it is not what JavaScript reads.
    """
    try:
        return _decoder.decode(_bounded(text))
    except RecursionError:
        raise ValueError("nested deeper than can be read here") from None


def beginnings(text: str) -> Iterator[Any]:
    """The values of all texts with which a text begins and that are JSON themselves, the shortest first."""
    start = len(text) - len(text.lstrip(" \t\n\r"))
    try:
        value, end = _decoder.raw_decode(_bounded(text), start)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict | list | str | bool) or text.startswith("null", start):
        yield value
        return
    for length in range(start + 1, min(end, start + _LONGEST_NUMBER) + 1):
        with suppress(ValueError):  # a sign, or a number without its last digit
            yield parse(text[:length])


def written(value: Any) -> str:
    """A text that is the same for values that are equal; unlike in Python, true is not 1."""
    return json.dumps(value, sort_keys=True)
