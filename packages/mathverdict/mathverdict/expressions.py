r"""Equality of two expressions: by their values, exactly or to many digits, at several values of their variables.

Invariant: equal means equal at every point where the reference is defined and real (or everywhere, if it never is).
A difference that cannot be told from none, because the numbers are too long, is a difference.
"""

import random
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from .exact import Undefined
from .grammar import parse
from .numbers import TOLERANCE, close
from .tree import Node, is_rounded, symbols, walk
from .values import SLACK, START, Undecidable, Value, real, value_of

_DECIMAL = re.compile(r"-?\d{1,400}(?:\.(?P<places>\d{0,400}))?", re.ASCII)
_POINTS = 10
_ENOUGH = 4
_DENOMINATORS = (7, 11, 13, 17, 19)


read = lru_cache(maxsize=256)(parse)


def equal_trees(gold: Node, given: Node) -> bool:
    if gold == given:
        return True
    if not symbols(given) <= symbols(gold):
        return False
    return _equal_everywhere(gold, given, partial(same_value, rounded=is_rounded(gold) or is_rounded(given)))


def proportional(gold: Node, given: Node) -> int:
    """1 or -1 if `given` is `gold` times a constant of which the real part has that sign, 0 if it is not one, or both
    are the same everywhere, so that they say nothing of their letters."""
    ratios: list[Value] = []
    values: list[Value] = []
    rounded = is_rounded(gold) or is_rounded(given)

    def steady(left: Value, right: Value, accuracy: int) -> bool:
        if not values or (len(values) < 2 and not same_value(values[0], left, accuracy, rounded=False)):
            values.append(left)
        if left == 0 or right == 0:
            return bool(left == 0 and right == 0)
        if isinstance(left, Fraction) != isinstance(right, Fraction):
            left, right = real(left), real(right)
        ratios.append(right / left)
        return same_value(ratios[0], ratios[-1], accuracy, rounded)

    if not _equal_everywhere(gold, given, steady) or not ratios or len(values) < 2:
        return 0
    ratio = ratios[0]
    return 1 if (ratio if isinstance(ratio, Fraction) else mp.re(ratio)) > 0 else -1


def constant_apart(gold: Node, given: Node) -> bool:
    """Whether the two differ by the same number everywhere."""
    first: dict[str, Value] = {}

    def agree(left: Value, right: Value, accuracy: int) -> bool:
        apart = real(left) - real(right)
        off = abs(first.setdefault("", apart) - apart)
        return bool(off <= mp.ldexp(1 + abs(real(left)), -min(accuracy, SLACK) // 2))

    return symbols(given) <= symbols(gold) and _equal_everywhere(gold, given, agree)


def same_value(left: Value, right: Value, accuracy: int, rounded: bool) -> bool:
    """Whether two values agree: exactly, to all `accuracy` bits that are right, or to the digits of a decimal."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return close(left, right, rounded)
    a, b = real(left), real(right)
    rough_difference, rough_size = abs(a - b), max(abs(a), abs(b))
    if rough_difference <= mp.ldexp(rough_size, -accuracy):
        return True
    return bool(rounded and rough_difference <= real(TOLERANCE) * min(mp.mpf(1), rough_size))


def _equal_everywhere(gold: Node, given: Node, agree: Any) -> bool:
    names = sorted(symbols(gold) | symbols(given))
    complex_gold = any(part.kind == "constant" and part.name == "i" for part in walk(gold))
    if not names:
        return bool(_agree_at(gold, given, {}, agree))
    tried = 0
    skipped: list[dict[str, Fraction]] = []
    for point in points(names, _counted(gold) | _counted(given)):
        verdict = _agree_at(gold, given, point, agree, only_real=not complex_gold)
        if verdict is None:
            skipped.append(point)
        elif not verdict:
            return False
        else:
            tried += 1
    if tried >= _ENOUGH:
        return True
    return tried == 0 and all(_agree_at(gold, given, point, agree) for point in skipped)


def _agree_at(gold: Node, given: Node, point: dict[str, Fraction], agree: Any, only_real: bool = False) -> bool | None:
    try:
        left = value_of(gold, point)
    except Undefined:
        return None
    except Undecidable:
        return False
    if (
        only_real
        and not isinstance(left.value, Fraction)
        and abs(mp.im(left.value)) > mp.ldexp(abs(left.value), -SLACK)
    ):
        return None
    try:
        right = value_of(given, point, left.precision)
        if right.precision > left.precision:
            left = value_of(gold, point, right.precision)
    except (Undefined, Undecidable):
        return False
    with mp.workprec(max(left.precision, right.precision)):
        return bool(agree(left.value, right.value, min(left.accuracy, right.accuracy)))


def _counted(node: Node) -> frozenset[str]:
    """The variables in the bounds of sums: whole numbers."""
    series = [part for part in walk(node) if part.kind in {"sum", "prod"}]
    return frozenset().union(*(symbols(bound) for part in series for bound in part.args[:2]))


def points(names: list[str], counted: frozenset[str] = frozenset()) -> Iterator[dict[str, Fraction]]:
    """Values of the variables: near zero, larger, and of either sign; always the same for the same names."""
    for index in range(_POINTS):
        generator = random.Random(f"{index}")
        point = {}
        for name in names:
            top = generator.randint(1, 6) if index < 3 else generator.randint(8, 60)
            value = Fraction(top, generator.choice(_DENOMINATORS))
            point[name] = -value if index >= 6 and generator.random() < 0.7 else value
            if name in counted:
                point[name] = Fraction(index + 1 + len(name))
        yield point


def real_number(text: str) -> Any:
    """The real value of a spelled expression without variables; `None` if it is anything else."""
    try:
        node = read(text)
        if symbols(node):
            return None
        value = value_of(node, {}).value
    except (ValueError, Undefined, Undecidable):
        return None
    if isinstance(value, Fraction):
        return value
    return mp.re(value) if abs(mp.im(value)) <= mp.ldexp(abs(value), -SLACK) else None


def rounds_to(exact: str, rounded: str, share: int = 100) -> bool:
    """Whether the decimal `rounded` is half of its last place, and 1/`share`, from the number `exact` at most."""
    figure, value = _DECIMAL.fullmatch(rounded.replace(",", "")), real_number(exact)
    if figure is None or value is None:
        return False
    with mp.workprec(START):
        left, right = real(value), real(Fraction(figure[0]))
        place = mp.mpf(10) ** -len(figure["places"] or "")
        return bool(abs(left - right) <= min(abs(left) / share, place * 0.501))
