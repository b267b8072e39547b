"""Equality of quantities: figures with units, converted where both units measure the same dimension.

Invariant: a figure without a unit is never converted, and a sum of parts ("2 hours 15 minutes") needs its units.
"""

from collections.abc import Callable
from fractions import Fraction

from .expressions import real_number
from .measures import Measure, measure
from .numbers import Plain, read_number, same_number
from .units import Quantity, parts_of, quantity_of, same_unit

Equal = Callable[[str, str], bool]

_FULL_TURN = 7
"""Above 2π a bare reference for an angle is in degrees."""


def same_quantity(gold: Quantity, given: Quantity, equal: Equal) -> bool:
    """Whether an answer is the reference's quantity, in its unit, another of that dimension, or without one."""
    scale = _scale(gold.unit, given.unit)
    if scale is not None and not gold.needed and not given.needed:
        number = read_number(given.figure)
        if scale == 1 or number is None:
            return equal(
                gold.figure,
                given.figure
                if scale == 1
                else rf"\frac{{{scale.numerator}}}{{{scale.denominator}}}\cdot ({given.figure})",
            )
        wanted = read_number(gold.figure)
        converted = Plain(number.value * scale, number.rounded, number.percent)
        return same_number(wanted, converted) if wanted else equal(gold.figure, str(converted.value))
    angles = _same_angle(gold, given, equal)
    if angles is not None:
        return angles
    if given.unit == "cent" and not gold.unit:
        # Like a percent sign it makes the figure a hundredth.
        return False
    if given.unit == "degree" and not gold.unit and not _is_in_degrees(gold.figure):
        return False
    return same_unit(gold, given) and equal(gold.figure, given.figure)


def _same_angle(gold: Quantity, given: Quantity, equal: Equal) -> bool | None:
    """Whether two angles are the same, of which one says degrees and the other radians; else `None`."""
    if {gold.unit, given.unit} != {"degree", "rad"}:
        return None
    turn = r"\frac{180}{\pi}" if gold.unit == "degree" else r"\frac{\pi}{180}"
    return equal(gold.figure, rf"({given.figure})\cdot {turn}")


def same_parts(gold: str, given: str) -> bool | None:
    """Whether two texts of which one has several parts ("2 h 15 min") are the same amount; `None` if neither has."""
    if not parts_of(gold) and not parts_of(given):
        return None
    totals = [_total(parts_of(text) or [quantity_of(text)]) for text in (gold, given)]
    left, right = totals
    if left is None or right is None or left[1] != right[1]:
        return False
    return same_number(left[0], right[0])


def _scale(gold: str, given: str) -> Fraction | None:
    """How many of the reference's unit one of the answer's is; `None` if they are not of one dimension."""
    left, right = measure(gold), measure(given)
    if left is None or right is None or left.dimensions != right.dimensions:
        return None
    return right.factor / left.factor


def _is_in_degrees(figure: str) -> bool:
    value = real_number(figure)
    return value is not None and value > _FULL_TURN


def _total(parts: list[Quantity]) -> tuple[Plain, tuple[tuple[str, int], ...]] | None:
    """The sum of the parts in base units, and its dimensions."""
    found: list[tuple[Plain, Measure]] = []
    for part in parts:
        number, unit = read_number(part.figure), measure(part.unit)
        if number is None or unit is None or number.percent:
            return None
        found.append((number, unit))
    if len({unit.dimensions for _, unit in found}) != 1:
        return None
    value = sum((number.value * unit.factor for number, unit in found), Fraction(0))
    return Plain(value, any(number.rounded for number, _ in found)), found[0][1].dimensions
