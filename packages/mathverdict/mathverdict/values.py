"""Values of expression trees: exact rationals where they are, else floating point of as many bits as the text needs.

Invariant: a value is right to `slack` bits, whatever the size of the numbers in between: an addition whose terms are
2^n times apart, an exponent or an argument of n bits makes the whole be computed again with n more bits. What needs
more than `MAX_PRECISION` is `Undecidable`, never rounded to something that looks equal.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from mpmath import mp  # type: ignore[import-untyped]

from . import exact
from .exact import Inexact, Undefined
from .tree import Node

MAX_PRECISION = 1 << 16
SLACK = 160
START = 256
_MAX_MAGNITUDE = 40
_MAX_TERMS = 2000
_LOG_BASE = Fraction(1729, 211)
"""Of a logarithm without a base: neither 10 nor e, because both are meant by it."""
Value = Any
"""A `Fraction`, or a real or complex number of mpmath."""


class Undecidable(Exception):
    """The value cannot be computed with bounded effort."""


class Found(NamedTuple):
    """A value, the bits of it that are right, and the bits that it was computed with."""

    value: Value
    accuracy: int
    precision: int


def value_of(node: Node, point: Mapping[str, Fraction], precision: int = START) -> Found:
    """The value of `node` with its variables at `point`, computed with at least `precision` bits; `Undefined` if there
    is none, `Undecidable` if it needs more than the bounds allow."""
    while True:
        evaluator = _Evaluator(point, precision)
        with mp.workprec(precision):
            try:
                value = evaluator.value(node)
            except (ZeroDivisionError, OverflowError, TypeError, ValueError) as error:
                raise Undefined(str(error)) from error
            if not isinstance(value, Fraction) and not mp.isfinite(value):
                raise Undefined("not finite")
        accuracy = precision - evaluator.lost - 32
        if isinstance(value, Fraction) or accuracy >= evaluator.lost + SLACK:
            return Found(value, MAX_PRECISION if isinstance(value, Fraction) else accuracy, precision)
        precision = 2 * evaluator.lost + SLACK + 64
        if precision > MAX_PRECISION:
            raise Undecidable("too many digits")


def real(value: Value) -> Value:
    """`value` in floating point, of the present precision if it was a rational."""
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


class _Evaluator:
    def __init__(self, point: Mapping[str, Fraction], precision: int) -> None:
        self._point = dict(point)
        self._precision = precision
        self.lost = 0
        """Bits that the operations so far may have lost."""

    def value(self, node: Node) -> Value:
        if node.kind == "number":
            return node.value
        if node.kind == "symbol":
            return self._point[node.name]
        if node.kind == "constant":
            if node.name == "infty":
                raise Undefined("infinity")
            return {"pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1)}[node.name]
        if node.kind in {"sum", "prod"}:
            return self._series(node)
        args = [self.value(arg) for arg in node.args]
        if node.kind == "opaque":
            return self._opaque(node.name, args)
        return self._applied(node, args)

    def _applied(self, node: Node, args: list[Value]) -> Value:
        if all(isinstance(arg, Fraction) for arg in args):
            try:
                return _exactly(node, args)
            except Inexact:
                pass
        return self._roughly(node, [self._real(arg) for arg in args])

    def _real(self, value: Value) -> Value:
        if not isinstance(value, Fraction):
            return value
        if (size := exact.bits(value)) > 64:
            self.lost += size
        return real(value)

    def _series(self, node: Node) -> Value:
        low, high = (self.value(arg) for arg in node.args[:2])
        if (
            not all(isinstance(end, Fraction) and end.denominator == 1 for end in (low, high))
            or high - low > _MAX_TERMS
        ):
            raise Undecidable("the bounds of a sum")
        outside, step = self._point, Node("add" if node.kind == "sum" else "multiply")
        total: Value = Fraction(int(node.kind == "prod"))
        for index in range(int(low), int(high) + 1):
            self._point = {**outside, node.name: Fraction(index)}
            total = self._applied(step, [total, self.value(node.args[2])])
        self._point = outside
        return total

    def _opaque(self, name: str, args: list[Value]) -> Value:
        """A number that depends on the name and the arguments, and on the order of these unless it does not matter."""
        seed = sum(ord(char) * 31**index for index, char in enumerate(name)) % 9973 + 1
        total = mp.mpf(seed)
        for place, arg in enumerate(args):
            number = self._real(arg)
            total += mp.sin(self._small(number, 64) * seed / 7 + (0 if name in {"cap", "cup"} else place)) + number / 3
        return total

    def _roughly(self, node: Node, args: list[Value]) -> Value:
        if node.kind == "add":
            return self._sum(args)
        if node.kind == "multiply":
            return args[0] * args[1]
        if node.kind == "divide":
            return args[0] / args[1]
        if node.kind == "negate":
            return -args[0]
        if node.kind == "power":
            return self._power(args[0], args[1])
        if node.name == "root":
            return self._root(args[0], args[1])
        if node.name == "log" and len(args) == 1:
            return mp.log(args[0]) / mp.log(real(_LOG_BASE))
        if node.name not in _FUNCTIONS:
            raise Undecidable(node.name)
        limit = 20 if node.name in {"factorial", "double_factorial", "binomial"} else 4000
        if node.name in {"exp", "sinh", "cosh", "tanh", "coth"}:
            limit = _MAX_MAGNITUDE
        for arg in args if node.name not in {"ln", "log", "lg", "abs", "max", "min"} else ():
            self._small(arg, limit)
        return _FUNCTIONS[node.name](*args)

    def _sum(self, args: list[Value]) -> Value:
        total = mp.mpf(0)
        for term in args:
            if total == 0 or term == 0:
                total += term
                continue
            sizes = mp.mag(total), mp.mag(term)
            result = total + term
            spread = abs(sizes[0] - sizes[1])
            cancelled = max(sizes) - mp.mag(result) if result != 0 else self._precision
            if cancelled > self._precision - 80:
                # All bits went: zero, as far as anybody can see at this precision.
                result = mp.mpf(0)
            else:
                self.lost += int(spread + max(0, cancelled))
            total = result
        return total

    def _power(self, base: Value, exponent: Value) -> Value:
        self._small(exponent, _MAX_MAGNITUDE)
        if base == 0:
            if mp.re(exponent) <= 0:
                raise Undefined("zero to a power that is not positive")
            return mp.mpf(0)
        size = abs(mp.mag(base))
        if size > 1 << _MAX_MAGNITUDE:
            raise Undecidable("too large")
        self.lost += int(mp.mag(size + 1))
        return mp.power(base, exponent)

    def _root(self, value: Value, order: Value) -> Value:
        if mp.im(order) == 0 and mp.isint(order) and 1 < order <= 64:
            odd = int(order) % 2 == 1
            if odd and mp.im(value) == 0 and mp.re(value) < 0:
                return -mp.root(-mp.re(value), int(order))
            return mp.root(value, int(order))
        return self._power(value, 1 / order)

    def _small(self, value: Value, limit: int) -> Value:
        size = mp.mag(value) if value != 0 else 0
        if size > limit:
            raise Undecidable("too large an argument")
        self.lost += max(0, int(size))
        return value


def _exactly(node: Node, args: list[Fraction]) -> Fraction:
    function = exact.FUNCTIONS.get(node.name or node.kind)
    if function is None:
        raise Inexact
    return function(*args)


def _floor(value: Value) -> Value:
    nearest = mp.nint(value)
    return nearest if abs(value - nearest) < mp.ldexp(1, -80) else mp.floor(value)


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "ln": mp.log, "lg": lambda value: mp.log(value, 10), "log": lambda value, base: mp.log(value) / mp.log(base),
    "exp": mp.exp, "abs": abs,
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc,
    "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan, "arccot": mp.acot, "arcsec": mp.asec,
    "arccsc": mp.acsc, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth,
    "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
    "factorial": mp.factorial, "double_factorial": mp.fac2, "binomial": mp.binomial,
    "floor": _floor, "ceiling": lambda value: -_floor(-value), "max": max, "min": min,
}  # fmt: skip
