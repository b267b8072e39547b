r"""Values: plain numbers, expression trees, and equality by them.

Invariant: a value is an exact rational of at most `MAX_BITS` bits where it can be, else right to `SLACK` bits: an
addition whose terms are 2^n times apart, an exponent or an argument of n bits makes the whole be computed again with n
more bits. What needs more than `MAX_PRECISION` bits is a difference. Equal means equal at every point where the
reference is defined and real (or everywhere, if it never is); a decimal may leave out digits.
"""

import math
import operator
import random
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

from mpmath import mp  # type: ignore[import-untyped]

from .errors import Inexact, Undecidable, Undefined
from .grammar import Node, is_rounded, parse, symbols, walk

MAX_DIGITS = 400
TOLERANCE = Fraction(1, 10**6)
_GROUPED = r"\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d{1,3}(?:_\d{3})+"
_UNSIGNED = rf"(?:(?:{_GROUPED}|\d+)(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(rf"[+-]?\s*{_UNSIGNED}", re.ASCII)
_SCIENTIFIC = re.compile(
    rf"(?P<mantissa>[+-]?\s*{_UNSIGNED})?\s*(?:[eE](?P<e>[+-]?\d{{1,4}})"
    r"|(?:\\cdot\s*|(?<![\d.])|\bx\s*)10\s*\^\s*(?:\{\s*(?P<b>[+-]?\d{1,4})\s*\}|(?P<p>[+-]?\d{1,4})))",
    re.ASCII,
)
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>\d+)\s*)?\\frac\s*(?:\{\s*(?P<top>[+-]?[\d,.]+)\s*\}|(?P<t>\d))\s*"
    r"(?:\{\s*(?P<bottom>[+-]?[\d,.]+)\s*\}|(?P<b>\d))",
    re.ASCII,
)
_SLASH = re.compile(
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>\d+)\s+)?(?P<top>[\d,.]+)\s*/\s*(?P<bottom>[+-]?[\d,.]+)", re.ASCII
)
_RECURRING = re.compile(r"(?P<fixed>[+-]?\d+\.(?P<places>\d*))\\overline\s*\{?(?P<period>\d+)\}?", re.ASCII)
_PERCENT = re.compile(r"\s*(?:\\?%|\\text\{\s*percent\s*\}|percent)\s*$", re.IGNORECASE)
MAX_BITS = 1 << 17
_MAX_FACTORIAL = 9000
_MAX_ROOT_BITS = 4096
MAX_PRECISION = 1 << 16
SLACK = 160
START = 256
_MAX_MAGNITUDE = 40
_MAX_TERMS = 2000
_LOG_BASE = Fraction(1729, 211)
"""Of a logarithm without a base: neither 10 nor e, because both are meant by it."""
Value = Any
"""A `Fraction`, or a real or complex number of mpmath."""
_PLACES = re.compile(r"-?\d{1,400}(?:\.(?P<places>\d{0,400}))?", re.ASCII)
_POINTS = 10
_ENOUGH = 4
_DENOMINATORS = (7, 11, 13, 17, 19)
read = lru_cache(maxsize=256)(parse)


class PlainNumber(NamedTuple):
    value: Fraction
    rounded: bool
    """Written with a decimal point or an exponent, so it may stand for a longer number."""
    percent: bool = False


def read_number(text: str) -> PlainNumber | None:
    """The number that the spelled `text` is, or `None` if it is anything else or has over 400 digits."""
    if len(text) > 2 * MAX_DIGITS:
        return None
    stripped = _PERCENT.sub("", text)
    percent = stripped != text
    text = stripped.strip()
    while len(text) > 2 and (text[0], text[-1]) in {("(", ")"), ("{", "}")} and not set(text[1:-1]) & set("(){},"):
        text = text[1:-1].strip()
    number = _unsuffixed(text)
    return None if number is None else PlainNumber(number.value, number.rounded, percent)


def _unsuffixed(text: str) -> PlainNumber | None:
    if _DECIMAL.fullmatch(text):
        return PlainNumber(_decimal(text), "." in text.rstrip("."))
    if found := _SCIENTIFIC.fullmatch(text):
        exponent = int(found["e"] or found["b"] or found["p"])
        mantissa = _decimal(found["mantissa"]) if found["mantissa"] else Fraction(1)
        if abs(exponent) > MAX_DIGITS or (found["e"] and not found["mantissa"]):
            return None
        return PlainNumber(mantissa * Fraction(10) ** exponent, True)
    if found := _FRACTION.fullmatch(text) or _SLASH.fullmatch(text):
        groups = found.groupdict()
        texts = groups["top"] or groups.get("t") or "", groups["bottom"] or groups.get("b") or ""
        if not all(map(_DECIMAL.fullmatch, texts)) or (bottom := _decimal(texts[1])) == 0:
            return None
        value = _decimal(texts[0]) / bottom
        if groups["whole"] and not 0 <= value < 1:
            return None
        value += int(groups["whole"] or 0)
        return PlainNumber(-value if groups["sign"] == "-" else value, False)
    if found := _RECURRING.fullmatch(text):
        tail = Fraction(int(found["period"]), (10 ** len(found["period"]) - 1) * 10 ** len(found["places"]))
        return PlainNumber(_decimal(found["fixed"]) + (-tail if text.startswith("-") else tail), False)
    return None


def _decimal(text: str) -> Fraction:
    return Fraction(re.sub(r"[\s,_]", "", text).removesuffix("."))


def same_number(left: PlainNumber, right: PlainNumber) -> bool:
    """Whether an answer (`right`) is the number `left`; a percent equals its fraction, and its bare figure if the
    reference is a percentage."""
    rounded = left.rounded or right.rounded
    shares = [number.value / 100 if number.percent else number.value for number in (left, right)]
    if close(shares[0], shares[1], rounded):
        return True
    return (left.percent or not right.percent) and close(left.value, right.value, rounded)


def close(left: Fraction, right: Fraction, rounded: bool) -> bool:
    """Exact equality, or within the tolerance when a decimal is involved."""
    if not rounded:
        return left == right
    return abs(left - right) <= TOLERANCE * min(Fraction(1), max(abs(left), abs(right)))


def bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _of_two(operation: Callable[[Fraction, Fraction], Fraction]) -> Callable[[Fraction, Fraction], Fraction]:
    """Return an operation that is refused where its result may be too long."""

    def bounded(left: Fraction, right: Fraction) -> Fraction:
        _bounded(bits(left) + bits(right))
        return operation(left, right)

    return bounded


def power(base: Fraction, exponent: Fraction) -> Fraction:
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
    if order == 1:
        return value
    if order < 1 or (value < 0 and order % 2 == 0):
        raise Inexact
    parts = [_integer_root(part, order) for part in (abs(value.numerator), value.denominator)]
    found = Fraction(parts[0], parts[1])
    return -found if value < 0 else found


def _integer_root(value: int, order: int) -> int:
    if value.bit_length() > _MAX_ROOT_BITS:
        raise Inexact
    with mp.workprec(value.bit_length() + 64):
        found = int(mp.nint(mp.root(value, order)))
    if found**order != value:
        raise Inexact
    return found


def _whole(*values: Fraction, most: int | None = None) -> list[int]:
    if any(value.denominator != 1 or (most and not 0 <= value <= most) for value in values):
        raise Inexact
    return [value.numerator for value in values]


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda *terms: reduce(_of_two(operator.add), terms),
    "negate": operator.neg,
    "multiply": _of_two(operator.mul),
    "divide": _of_two(operator.truediv),
    "power": power,
    "factorial": lambda value: Fraction(math.factorial(*_whole(value, most=_MAX_FACTORIAL))),
    "double_factorial": lambda value: Fraction(math.prod(range(_whole(value, most=_MAX_FACTORIAL)[0], 1, -2))),
    "binomial": lambda *pair: Fraction(math.comb(*_whole(*pair, most=_MAX_FACTORIAL))),
    "bmod": operator.mod,
    "abs": abs,
    "max": max,
    "min": min,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceiling": lambda value: Fraction(math.ceil(value)),
    "gcd": lambda *values: Fraction(math.gcd(*_whole(*values))),
    "lcm": lambda *values: Fraction(math.lcm(*_whole(*values))),
    "root": lambda value, order: root(value, *_whole(order)),
}


def _bounded(size: int) -> None:
    if size > MAX_BITS:
        raise Inexact


class ComputedValue(NamedTuple):
    """A value, the bits of it that are right, and the bits that it was computed with."""

    value: Value
    accuracy: int
    precision: int


def value_of(node: Node, point: Mapping[str, Fraction], precision: int = START) -> ComputedValue:
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
            return ComputedValue(value, MAX_PRECISION if isinstance(value, Fraction) else accuracy, precision)
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
            low, high = (self.value(arg) for arg in node.args[:2])
            whole = all(isinstance(end, Fraction) and end.denominator == 1 for end in (low, high))
            if not whole or high - low > _MAX_TERMS:
                raise Undecidable("the bounds of a sum")
            outside, step = self._point, Node("add" if node.kind == "sum" else "multiply")
            total: Value = Fraction(int(node.kind == "prod"))
            for index in range(int(low), int(high) + 1):
                self._point = {**outside, node.name: Fraction(index)}
                total = self._applied(step, [total, self.value(node.args[2])])
            self._point = outside
            return total
        args = [self.value(arg) for arg in node.args]
        if node.kind == "opaque":
            # A number that depends on the name and the arguments, and on the order of these unless it does not matter.
            seed = sum(ord(char) * 31**index for index, char in enumerate(node.name)) % 9973 + 1
            total = mp.mpf(seed)
            for place, arg in enumerate(args):
                number = self._real(arg)
                total += (
                    mp.sin(self._small(number, 64) * seed / 7 + (0 if node.name in {"cap", "cup"} else place))
                    + number / 3
                )
            return total
        return self._applied(node, args)

    def _applied(self, node: Node, args: list[Value]) -> Value:
        exactly = _EXACT.get(node.name or node.kind)
        if exactly and all(isinstance(arg, Fraction) for arg in args):
            try:
                return exactly(*args)
            except Inexact:
                pass
        args = [self._real(arg) for arg in args]
        if node.kind == "add":
            return self._sum(args)
        if node.kind in _SIMPLE:
            return _SIMPLE[node.kind](*args)
        if node.kind == "power":
            return self._power(args[0], args[1])
        if node.name == "root":
            return self._root(args[0], args[1])
        if node.name == "log" and len(args) == 1:
            return mp.log(args[0]) / mp.log(real(_LOG_BASE))
        if node.name not in _ROUGH:
            raise Undecidable(node.name)
        limit = 20 if node.name in {"factorial", "double_factorial", "binomial"} else 4000
        if node.name in {"exp", "sinh", "cosh", "tanh", "coth"}:
            limit = _MAX_MAGNITUDE
        for arg in args if node.name not in {"ln", "log", "lg", "abs", "max", "min"} else ():
            self._small(arg, limit)
        return _ROUGH[node.name](*args)

    def _real(self, value: Value) -> Value:
        if not isinstance(value, Fraction):
            return value
        if (size := bits(value)) > 64:
            self.lost += size
        return real(value)

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
        size = abs(mp.mag(base)) if base else 0
        if size > 1 << _MAX_MAGNITUDE:
            raise Undecidable("too large")
        self.lost += int(mp.mag(size + 1))
        return mp.power(base, exponent)

    def _root(self, value: Value, order: Value) -> Value:
        if mp.im(order) != 0 or not mp.isint(order) or not 1 < order <= 64:
            return self._power(value, 1 / order)
        negative = order % 2 == 1 and mp.im(value) == 0 and mp.re(value) < 0
        return -mp.root(-mp.re(value), int(order)) if negative else mp.root(value, int(order))

    def _small(self, value: Value, limit: int) -> Value:
        size = mp.mag(value) if value != 0 else 0
        if size > limit:
            raise Undecidable("too large an argument")
        self.lost += max(0, int(size))
        return value


def _floor(value: Value) -> Value:
    nearest = mp.nint(value)
    return nearest if abs(value - nearest) < mp.ldexp(1, -80) else mp.floor(value)


_SIMPLE: dict[str, Callable[..., Value]] = {
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negate": operator.neg,
}
_ROUGH: dict[str, Callable[..., Value]] = {
    "ln": mp.log, "lg": lambda value: mp.log(value, 10), "log": lambda value, base: mp.log(value) / mp.log(base),
    "exp": mp.exp, "abs": abs,
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc,
    "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan, "arccot": mp.acot, "arcsec": mp.asec,
    "arccsc": mp.acsc, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth,
    "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
    "factorial": mp.factorial, "double_factorial": mp.fac2, "binomial": mp.binomial,
    "floor": _floor, "ceiling": lambda value: -_floor(-value), "max": max, "min": min,
}  # fmt: skip


def equal_trees(gold: Node, given: Node) -> bool:
    if gold == given or not symbols(given) <= symbols(gold):
        return gold == given
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
            return bool(left == right)
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
    tried, skipped = 0, []
    for point in points(names, _counted(gold) | _counted(given)):
        verdict = _agree_at(gold, given, point, agree, only_real=not complex_gold)
        if verdict is None:
            skipped.append(point)
        elif not verdict:
            return False
        tried += verdict is not None
    return tried >= _ENOUGH or (tried == 0 and all(_agree_at(gold, given, point, agree) for point in skipped))


def _agree_at(gold: Node, given: Node, point: dict[str, Fraction], agree: Any, only_real: bool = False) -> bool | None:
    try:
        left = value_of(gold, point)
    except Undefined:
        return None
    except Undecidable:
        return False
    if only_real and not _is_real(left.value):
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
    return mp.re(value) if _is_real(value) else None


def _is_real(value: Value) -> bool:
    return isinstance(value, Fraction) or bool(abs(mp.im(value)) <= mp.ldexp(abs(value), -SLACK))


def rounds_to(exact: str, rounded: str, share: int = 100) -> bool:
    """Whether the decimal `rounded` is half of its last place, and 1/`share`, from the number `exact` at most."""
    figure, value = _PLACES.fullmatch(rounded.replace(",", "")), real_number(exact)
    if figure is None or value is None:
        return False
    with mp.workprec(START):
        left, right = real(value), real(Fraction(figure[0]))
        place = mp.mpf(10) ** -len(figure["places"] or "")
        return bool(abs(left - right) <= min(abs(left) / share, place * 0.501))
