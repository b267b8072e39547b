r"""Equality of integrals, limits, infinite sums and matrix products by math-verify, with the guards that it lacks.

Invariant: math-verify sees only texts made of the commands listed here, because it drops words, units and signs that
it does not know; a number it calls equal has to be equal to twenty digits, or to the digits of a decimal. Deadlines are
the caller's: math-verify's own are signals and stay off.
"""

import logging
import re
from functools import lru_cache
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]
from mpmath import mp  # type: ignore[import-untyped]
from sympy import Basic, Float  # type: ignore[import-untyped]

logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns that its signals are off

_PRECISION = 30
_EXACT = 20
_ROUNDED = 6
_LATEX = [LatexExtractionConfig()]
_COMMAND = re.compile(r"\\(?P<name>[A-Za-z]+)|[A-Za-z]{4,}")
_NAMES = (
    "int iint lim sum prod frac sqrt cdot infty to pi sin cos tan cot sec csc arcsin arccos arctan ln log exp "
    "begin end alpha beta gamma delta theta lambda mu sigma phi omega le ge det binom matrix pmatrix bmatrix vmatrix"
)
_KNOWN = frozenset(_NAMES.split(" "))
_TOWER = re.compile(r"\^\s*\{[^{}]*\^|(?<!\d)\d{5,}\s*[!^]|\^\s*\{?\s*\d{5,}|!\s*\}?\s*!")


@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    found = parse(rf"\boxed{{{text}}}", _LATEX, fallback_mode="no_fallback", parsing_timeout=None)
    return found[0] if found else None


def equal_expressions(reference: str, answer: str) -> bool:
    """Whether two spelled expressions are equal, if both are texts that math-verify reads and may be trusted with."""
    if not (_trusted(reference) and _trusted(answer) and _letters(answer) <= _letters(reference)):
        return False
    gold, given = _parsed(reference), _parsed(answer)
    return None not in (gold, given) and bool(verify(gold, given, timeout_seconds=None)) and not _apart(gold, given)


def _letters(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]", _COMMAND.sub(" ", re.sub(r"\\(?:begin|end)\{\w+\}", " ", text)))) - set("edi")


def _trusted(text: str) -> bool:
    return (
        not _TOWER.search(text)
        and "'" not in text
        and all((found["name"] or found[0]) in _KNOWN for found in _COMMAND.finditer(text))
    )


def _apart(gold: Any, given: Any) -> bool:
    if not (isinstance(gold, Basic) and isinstance(given, Basic)) or gold.free_symbols or given.free_symbols:
        return False
    digits = _ROUNDED if gold.has(Float) or given.has(Float) else _EXACT
    try:
        with mp.workdps(_PRECISION):
            left, right = (mp.mpmathify(value.evalf(_PRECISION)) for value in (gold, given))
            return bool(abs(left - right) > mp.mpf(10) ** -digits * max(abs(left), abs(right)))
    except (TypeError, ValueError, OverflowError):
        return True
