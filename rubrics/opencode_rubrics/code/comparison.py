"""Whether what a program printed, or a function returned, is what was expected."""

import re
from decimal import Decimal

from pydantic import JsonValue

_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")


def same_output(printed: str, expected: str, tolerance: float, *, strict: bool = False) -> bool:
    """Whether the texts agree, apart from white space around them.

    Unless `strict`, also if their lines that are not empty agree, or the words of each line, or if all words of both
    are decimals that differ by at most `tolerance`, wherever the lines break.
    """
    if printed.strip() == expected.strip():
        return True
    if strict:
        return False
    if [line.split() for line in _lines(printed)] == [line.split() for line in _lines(expected)]:
        return True
    words = printed.split(), expected.split()
    return len(words[0]) == len(words[1]) and all(_close(*pair, tolerance) for pair in zip(*words, strict=True))


def same_result(returned: JsonValue, expected: JsonValue, *, strict: bool = False) -> bool:
    """Whether the values are equal as JSON; unless `strict`, also if `expected` is a list that begins with the value:
    datasets often wrap it once more."""
    if _equal(returned, expected):
        return True
    return not strict and isinstance(expected, list) and bool(expected) and _equal(returned, expected[0])


def _equal(one: JsonValue, other: JsonValue) -> bool:
    return one == other or repr(one) == repr(other)  # NaN is expected where it is written


def _lines(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line.strip()]


def _close(one: str, other: str, tolerance: float) -> bool:
    if not (_DECIMAL.fullmatch(one) and _DECIMAL.fullmatch(other)):
        return False
    return abs(Decimal(one) - Decimal(other)) <= Decimal(str(tolerance))
