r"""Units as measures: what `km/h`, `m s^{-1}` or `J/(mol K)` is in base units, for units of one dimension.

Invariant: a factor is an exact rational. What is no multiple of another unit (degrees of temperature, months) is a
dimension of its own, so that it never equals anything else.
"""

import re
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from .unit_names import UNITS


class Measure(NamedTuple):
    """How much of which dimensions a unit is."""

    factor: Fraction
    dimensions: tuple[tuple[str, int], ...]


_PREFIXES = {"k": 3, "M": 6, "G": 9, "T": 12, "d": -1, "c": -2, "m": -3, "μ": -6, "u": -6, "n": -9, "p": -12}
_PREFIX_NAMES = {
    "kilo": "k",
    "mega": "M",
    "giga": "G",
    "centi": "c",
    "milli": "m",
    "micro": "μ",
    "nano": "n",
    "pico": "p",
}
_PREFIXED = "m g s l N J W V A Hz Pa eV ohm F C T mol cal bit byte"
"""The units that take prefixes; the names are those of `UNITS`."""
_SYMBOLS = {"l": "L", "ohm": "Ω", "bit": "b", "byte": "B"}
_NAMES = {
    "m": "met(?:er|re)s?", "g": "grams?", "s": "seconds?", "l": "lit(?:er|re)s?", "N": "newtons?", "J": "joules?",
    "W": "watts?", "V": "volts?", "A": "amp(?:ere)?s?", "Hz": "hertz", "Pa": "pascals?", "eV": "electron ?volts?",
    "ohm": "ohms?", "F": "farads?", "C": "coulombs?", "T": "teslas?", "mol": "moles?", "cal": "calories?",
    "bit": "bits?", "byte": "bytes?",
}  # fmt: skip
_DEFINED: dict[str, tuple[str, str]] = {
    "g": ("1/1000", "kg"), "l": ("1/1000", "m m m"), "N": ("1", "kg m /s /s"), "J": ("1", "kg m m /s /s"),
    "W": ("1", "kg m m /s /s /s"), "V": ("1", "kg m m /s /s /s /A"), "Hz": ("1", "/s"), "Pa": ("1", "kg /m /s /s"),
    "ohm": ("1", "kg m m /s /s /s /A /A"), "C": ("1", "A s"), "F": ("1", "A A s s s s /kg /m /m"),
    "T": ("1", "kg /s /s /A"), "eV": ("0.0000000000000000001602176634", "kg m m /s /s"),
    "cal": ("4.184", "kg m m /s /s"),
    "min": ("60", "s"), "h": ("3600", "s"), "day": ("86400", "s"), "week": ("604800", "s"), "in": ("0.0254", "m"),
    "ft": ("0.3048", "m"), "yd": ("0.9144", "m"), "mi": ("1609.344", "m"), "acre": ("43560", "ft ft"),
    "hectare": ("10000", "m m"), "byte": ("8", "bit"), "cent": ("1/100", "dollar"), "quart": ("1/4", "gallon"),
    "pint": ("1/8", "gallon"), "cup": ("1/16", "gallon"), "tablespoon": ("1/256", "gallon"),
    "teaspoon": ("1/768", "gallon"), "year": ("12", "month"), "oz": ("1/16", "lb"), "kWh": ("3600000", "kg m m /s /s"),
    "atm": ("101325", "kg /m /s /s"),
}  # fmt: skip
_ALIASES = {"kcal": (1000, "cal"), "KB": (1000, "byte"), "MB": (10**6, "byte"), "GB": (10**9, "byte")}
_LONE = {"unit", "people", "year old"}
"""Words that count rather than measure."""
_CANONICAL = [(re.compile(pattern), name) for name, pattern in UNITS.items() if "/" not in name]
_TOKEN = re.compile(
    r"\s*(?:(?P<power>\^?\s*\{?\s*(?P<exponent>-?\d)\s*\}?|squared\b|cubed\b)|(?P<over>/|per\b|\bp(?=er\b))|(?P<open>\()"
    r"|(?P<close>\))|(?P<times>\\cdot|\\times|[·*.-])|(?P<shape>square|sq\.?|cubic|cu\.?)\s|(?P<name>[A-Za-zμΩ]+))"
)


def measure(text: str) -> Measure | None:
    """What a unit is, canonical or as written (without `\\text`); `None` if a part of it is unknown here."""
    factor, dimensions = Fraction(1), Counter[str]()
    sign, group, position, last, power = 1, 0, 0, "", 1
    text = re.sub(r"\\mu\s*", "μ", text.replace(r"\Omega", "Ω")).strip()

    def close() -> bool:
        nonlocal factor, last, power
        if not last:
            return True
        found = _single(last)
        if found is None:
            return False
        factor *= found.factor ** (power)
        for name, count in found.dimensions:
            dimensions[name] += count * power
        last, power = "", 1
        return True

    pending = 1
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        position = token.end()
        if token["power"]:
            if not last:
                return None
            word = token["power"].strip()
            power *= {"squared": 2, "cubed": 3}.get(word) or int(token["exponent"] or "")
            if not close():
                return None
        elif token["over"]:
            if not close() or sign < 0:
                return None
            sign = -1
        elif token["open"]:
            if not close() or group:
                return None
            group = 1
        elif token["close"]:
            if not close() or not group:
                return None
            group, sign = 0, 1
        elif token["shape"]:
            pending = 2 if token["shape"].startswith("sq") else 3
        elif token["name"]:
            if not close():
                return None
            last, power, pending = token["name"], sign * pending, 1
            sign = sign if group else 1
    if not close() or group or not any(dimensions.values()):
        return None
    return Measure(factor, tuple(sorted((name, count) for name, count in dimensions.items() if count)))


def _single(name: str) -> Measure | None:
    """One unit with its prefix."""
    for unit in _PREFIXED.split(" "):
        symbol = _SYMBOLS.get(unit, unit)
        symbols = {symbol, "l"} if unit == "l" else {symbol}
        if name in symbols or re.fullmatch(_NAMES[unit], name):
            return _defined(unit)
        for prefix, exponent in _PREFIXES.items():
            if name in {prefix + each for each in symbols}:
                return _scaled(unit, exponent)
        for word, prefix in _PREFIX_NAMES.items():
            if name.startswith(word) and re.fullmatch(_NAMES[unit], name[len(word) :]):
                return _scaled(unit, _PREFIXES[prefix])
    known = name if name in UNITS else next((unit for pattern, unit in _CANONICAL if pattern.fullmatch(name)), "")
    if known in _ALIASES:
        factor, unit = _ALIASES[known]
        return Measure(_defined(unit).factor * factor, _defined(unit).dimensions)
    return _defined(known) if known and known not in _LONE else None


def _scaled(unit: str, exponent: int) -> Measure:
    base = _defined(unit)
    return Measure(base.factor * Fraction(10) ** exponent, base.dimensions)


def _defined(unit: str) -> Measure:
    if unit not in _DEFINED:
        return Measure(Fraction(1), ((unit, 1),))
    number, parts = _DEFINED[unit]
    factor, dimensions = Fraction(number), Counter[str]()
    for part in parts.split(" "):
        inner = Measure(Fraction(1), (("kg", 1),)) if part.strip("/") == "kg" else _defined(part.strip("/"))
        power = -1 if part.startswith("/") else 1
        factor *= inner.factor**power
        for name, count in inner.dimensions:
            dimensions[name] += count * power
    return Measure(factor, tuple(sorted((name, count) for name, count in dimensions.items() if count)))
