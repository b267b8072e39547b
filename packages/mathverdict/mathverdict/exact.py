"""Arithmetic on exact rationals of bounded size.

Invariant: a result is the exact value or `Inexact` is raised; no operation makes a number of more than `MAX_BITS` bits,
so none can take the memory or the time of 10^(10^9).
"""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import reduce

MAX_BITS = 1 << 17
_MAX_FACTORIAL = 9000


class Inexact(ArithmeticError):
    """The value is not a rational number, or one that is too long."""


class Undefined(ArithmeticError):
    """The expression has no value, such as a division by zero."""


def bits(value: Fraction) -> int:
    """Length of the longer part."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def add(left: Fraction, right: Fraction) -> Fraction:
    _bounded(bits(left) + bits(right))
    return left + right


def multiply(left: Fraction, right: Fraction) -> Fraction:
    _bounded(bits(left) + bits(right))
    return left * right


def divide(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise Undefined("division by zero")
    return multiply(left, 1 / right)


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """Power; the real one for a root of odd order."""
    if base == 0:
        if exponent <= 0:
            raise Undefined("zero to a power that is not positive")
        return base
    if abs(base) == 1 and exponent.denominator == 1:
        return base if exponent.numerator % 2 else Fraction(1)
    if exponent.denominator > 64 or bits(exponent) > 40:
        raise Inexact
    rooted = root(base, exponent.denominator)
    _bounded(bits(rooted) * abs(exponent.numerator))
    return rooted**exponent.numerator


def root(value: Fraction, order: int) -> Fraction:
    """The real root, if it is rational."""
    if order == 1:
        return value
    if order < 1 or (value < 0 and order % 2 == 0):
        raise Inexact
    parts = [_integer_root(part, order) for part in (abs(value.numerator), value.denominator)]
    found = Fraction(parts[0], parts[1])
    return -found if value < 0 else found


def _integer_root(value: int, order: int) -> int:
    if order == 2:
        found = math.isqrt(value)
    elif bits(Fraction(value)) > 4096:
        raise Inexact
    else:
        found = _nearest_root(value, order)
    if found**order != value:
        raise Inexact
    return found


def _nearest_root(value: int, order: int) -> int:
    low, high = 0, 1 << (value.bit_length() // order + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**order <= value else (low, middle - 1)
    return low


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value > _MAX_FACTORIAL:
        raise Inexact
    return Fraction(math.factorial(value.numerator))


def _double_factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= _MAX_FACTORIAL:
        raise Inexact
    return Fraction(math.prod(range(value.numerator, 1, -2)))


def _binomial(top: Fraction, bottom: Fraction) -> Fraction:
    if top.denominator != 1 or bottom.denominator != 1 or not 0 <= top <= _MAX_FACTORIAL:
        raise Inexact
    return Fraction(math.comb(top.numerator, bottom.numerator) if bottom >= 0 else 0)


def _whole(values: tuple[Fraction, ...]) -> list[int]:
    if any(value.denominator != 1 for value in values):
        raise Inexact
    return [value.numerator for value in values]


FUNCTIONS: dict[str, Callable[..., Fraction]] = {
    "add": lambda *terms: reduce(add, terms),
    "negate": operator.neg,
    "multiply": multiply,
    "divide": divide,
    "power": power,
    "factorial": _factorial,
    "double_factorial": _double_factorial,
    "binomial": _binomial,
    "bmod": operator.mod,
    "abs": abs,
    "max": max,
    "min": min,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceiling": lambda value: Fraction(math.ceil(value)),
    "gcd": lambda *values: Fraction(math.gcd(*_whole(values))),
    "lcm": lambda *values: Fraction(math.lcm(*_whole(values))),
    "root": lambda value, order: root(value, _whole((order,))[0]),
}


def _bounded(size: int) -> None:
    if size > MAX_BITS:
        raise Inexact
