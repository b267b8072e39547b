"""Decides whether two short answers are the same: as numbers if both are, else as text.

Pure functions. Mathematical notation (fractions, roots, sets) is not understood here.
"""

import re
from decimal import Decimal

# Groups of three after the first comma, or no comma at all: "1,2" is a pair, not twelve.
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


def same_answer(given: str, expected: str) -> bool:
    """Whether two answers are equal, ignoring runs of whitespace, or as numbers (`1,234` is `1234.0`)."""
    given, expected = " ".join(given.split()), " ".join(expected.split())
    if given == expected:
        return True
    left, right = _number(given), _number(expected)
    return left is not None and left == right


def _number(text: str) -> Decimal | None:
    # Models and papers write the typographic minus sign.
    text = text.replace("\N{MINUS SIGN}", "-")
    return Decimal(text.replace(",", "")) if _NUMBER.fullmatch(text) else None
