r"""Equality of single expressions by math-verify, with the guards that it lacks.

Invariant: a text counts only if all of it parses, and no two real numbers are equal that differ by more than one
part in a million. Deadlines are the caller's: math-verify's own are signals and stay off.
"""

import logging
from functools import lru_cache
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]
from sympy import Basic, Float, I, MatrixBase  # type: ignore[import-untyped]

logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns that its signals are off

_TOLERANCE = 1e-6
_EXACT_TOLERANCE = 1e-12
_LATEX = [LatexExtractionConfig()]


class Unparsable(ValueError):
    """A text is not an expression that math-verify reads."""


@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    found = parse(rf"\boxed{{{text}}}", _LATEX, fallback_mode="no_fallback", parsing_timeout=None)
    if not found:
        raise Unparsable(text)
    expression = found[0]
    if isinstance(expression, Basic | MatrixBase):
        # The parser leaves i a variable. On both sides alike that costs nothing, and i^2 is -1 again.
        units = [symbol for symbol in expression.free_symbols if symbol.name == "i"]
        return expression.subs(dict.fromkeys(units, I)) if units else expression
    return expression


def equal_expressions(reference: str, answer: str) -> bool:
    """Whether two spelled expressions are equal.

    Raises:
        Unparsable: one of them is no expression.
    """
    gold, given = _parsed(reference), _parsed(answer)
    if not verify(gold, given, allow_set_relation_comp=True, timeout_seconds=None):
        return False
    return not _apart(gold, given)


def real_value(text: str) -> float | None:
    """The value of a spelled expression that is a real number, else `None`."""
    try:
        return float(_parsed(text).evalf(15))
    except (Unparsable, TypeError, ValueError, OverflowError, AttributeError):
        return None


def _apart(gold: Any, given: Any) -> bool:
    """Whether both are real numbers that differ: math-verify rounds to six places, so to it 1e-8 is 0."""
    if not (isinstance(gold, Basic) and isinstance(given, Basic)) or gold.free_symbols or given.free_symbols:
        return False
    try:
        left, right = complex(gold.evalf(20)), complex(given.evalf(20))
    except (TypeError, ValueError, OverflowError):
        return False
    rough = gold.has(Float) or given.has(Float)
    size = max(abs(left), abs(right))
    if abs(left - right) <= (_TOLERANCE if rough else _EXACT_TOLERANCE) * min(size, 1 if rough else size):
        return False
    # "50%" and "50" are told equal on purpose.
    return not any(abs(a - b / 100) <= _TOLERANCE * size for a, b in ((left, right), (right, left)))
