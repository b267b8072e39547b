r"""Names of units, and units as measures: what `km/h`, `m s^{-1}` or `J/(mol K)` is in base units.

Invariant: a factor is an exact rational. What is not a multiple of another unit (degrees of temperature, months) is a
dimension of its own, so that it never equals anything else.
"""

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

UNITS = {
    "cm": "cm|centimet(?:er|re)s?", "mm": "mm|millimet(?:er|re)s?", "km": "km|kilomet(?:er|re)s?", "dm": "dm",
    "m": "m|met(?:er|re)s?", "in": "in|inch(?:es)?", "ft": "ft|feet|foot", "yd": "yd|yards?", "mi": "mi|miles?",
    "nm": "nm|nanomet(?:er|re)s?", "kg": "kg|kilograms?|kilos?", "g": "g|grams?", "mg": "mg|milligrams?",
    "lb": "lbs?|pounds?", "oz": "oz|ounces?", "t": "tons?|tonnes?",
    "s": "s|secs?|seconds?", "ms": "ms|milliseconds?", "min": "min|mins|minutes?", "h": "h|hrs?|hours?",
    "day": "days?", "week": "weeks?", "month": "months?", "year": "years?|yrs?",
    "year old": "years? old|years of age",
    "l": "l|L|lit(?:er|re)s?", "ml": "ml|mL|millilit(?:er|re)s?", "gallon": "gal|gallons?", "quart": "qts?|quarts?",
    "pint": "pints?|pts?", "cup": "cups?", "tablespoon": "tablespoons?|tbsp", "teaspoon": "teaspoons?|tsp",
    "acre": "acres?", "hectare": "hectares?|ha",
    "mi/h": "mph", "km/h": "kmh|kph|kmph", "m/s2": r"m/s\^?\{?2\}?|met(?:er|re)s per second squared",
    "rpm": "rpm|revolutions per minute",
    "dollar": "dollars?|usd|USD|bucks", "cent": "cents?|¢", "euro": "euros?|eur|EUR|€", "pound": "gbp|GBP|£",
    "yen": "yen", "yuan": "yuan|rmb|RMB", "rupee": "rupees?|Rs", "ruble": "rubles?|roubles?",
    "degree": "degrees?|deg", "degreeC": "(?:degrees? )?(?:celsius|Celsius)|degrees? C",
    "degreeF": "(?:degrees? )?(?:fahrenheit|Fahrenheit)|degrees? F", "rad": "rad|radians?", "K": "K|kelvins?",
    "unit": "units?", "N": "N|newtons?", "kN": "kN|kilonewtons?", "J": "J|joules?", "kJ": "kJ|kilojoules?",
    "MJ": "MJ|megajoules?",
    "eV": "eV|electron ?volts?", "cal": "cal|calories?", "kcal": "kcal", "W": "W|watts?", "kW": "kW|kilowatts?",
    "MW": "MW|megawatts?", "kWh": "kWh", "V": "V|volts?", "kV": "kV|kilovolts?", "mV": "mV|millivolts?",
    "A": "A|amps?|amperes?", "mA": "mA|milliamps?", "ohm": "ohms?", "Hz": "Hz|hertz", "kHz": "kHz", "MHz": "MHz",
    "GHz": "GHz", "Pa": "Pa|pascals?", "kPa": "kPa|kilopascals?", "MPa": "MPa|megapascals?", "atm": "atm|atmospheres?",
    "bar": "bars?",
    "mol": "mol|moles?", "T": "T|teslas?", "C": "coulombs?", "F": "farads?", "bit": "bits?", "byte": "bytes?",
    "KB": "KB|kB|kilobytes?", "MB": "MB|megabytes?", "GB": "GB|gigabytes?", "people": "people|persons?",
}  # fmt: skip
_COUNTED_NAMES = (
    "time way apple orange banana coin square point student book ball marble game ticket page boy girl child man "
    "woman men women adult member player team car bus seat chair table room house card dice die cube box bag bottle "
    "cookie candy cake pizza slice piece egg flower tree plant animal dog cat bird fish cow horse chicken sheep "
    "rabbit worker employee teacher guest visitor customer passenger friend letter word digit number integer solution "
    "root value pair triple triplet tuple set subset element term factor divisor multiple prime vertex vertices edge "
    "face side angle diagonal triangle rectangle circle line segment region path route step move turn round match "
    "arrangement permutation combination outcome possibility case pattern sequence string code color colour tile "
    "block brick stone stick pencil pen sticker stamp toy shirt hat shoe sock pant dress gift envelope key lock door "
    "window floor stair problem question mark vote signal lap trip train plane boat truck wheel bike bicycle row "
    "column cell handshake committee function polynomial zero intersection revolution rotation gram item person kid "
    "sandwich muffin donut doughnut cupcake pie lemon peach pear plum grape strawberry cherry mango carrot potato "
    "tomato bean seed leaf petal rose widget photo picture song movie video lattice "
    "class total work job way trip distance tank circle money class whole day hour year week town population "
    "molecule atom electron proton neutron particle photon ion"
)
COUNTED = frozenset(_COUNTED_NAMES.split(" "))


class Measure(NamedTuple):
    """How much of which dimensions a unit is."""

    factor: Fraction
    dimensions: tuple[tuple[str, int], ...]


_PREFIXES = {"k": 3, "M": 6, "G": 9, "T": 12, "d": -1, "c": -2, "m": -3, "μ": -6, "u": -6, "n": -9, "p": -12}
_PREFIX_NAMES = {
    "kilo": "k", "mega": "M", "giga": "G", "centi": "c", "milli": "m", "micro": "μ", "nano": "n", "pico": "p",
}  # fmt: skip
_PREFIXED = "m g s l N J W V A Hz Pa eV ohm F C T mol cal bit byte"
_SYMBOLS = {"l": "L", "ohm": "Ω", "bit": "b", "byte": "B"}
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
    "atm": ("101325", "kg /m /s /s"), "bar": ("100000", "kg /m /s /s"),
}  # fmt: skip
_LONE = {"unit", "people", "year old"}
_CANONICAL = [(re.compile(pattern), name) for name, pattern in UNITS.items() if "/" not in name]
_TOKEN = re.compile(
    r"\s*(?:(?P<power>\^?\s*\{?\s*(?P<exponent>-?\d)\s*\}?|squared\b|cubed\b)|(?P<over>/|per\b|\bp(?=er\b))|(?P<open>\()"
    r"|(?P<close>\))|(?P<times>\\cdot|\\times|[·*.-])|(?P<shape>square|sq\.?|cubic|cu\.?)\s|(?P<name>[A-Za-zμΩ]+))"
)
_ANY = "|".join(UNITS.values())
_BEHIND = re.compile(
    r"(?P<joined>(?:\^\s*(?!\{?\s*\\circ)\{?[-+]?\w+\}?|\.\d+|[A-Za-z](?![A-Za-z])"
    r"|(?:\\[,;:]|\s)*(?:\\pi(?![A-Za-z])|\\(?:times|cdot)\s*10\s*\^\s*\{?-?\d+\}?)))"
    r"|(?:\\[,;: )]|[\s$~])*(?P<unit>\\?%|\^\s*(?:\\circ|\{\s*\\circ\s*\})|°"
    rf"|\\(?:text|mathrm)\s*\{{\s*(?:{_ANY})[^{{}}]*\}}(?:\^\{{?[23]\}}?)?"
    rf"|(?:percent|hundred|thousand|million|billion|dozen|(?!(?:in|m|s|h|g|l|A|C|T|K|V|W|N|J|F|t)\b)(?:{_ANY})"
    rf"(?:\s*/\s*(?:{_ANY})|\s*\^\s*\{{?[23]\}}?|²|³)?)(?![A-Za-z/^]))"
)


def measure(text: str) -> Measure | None:
    """What a unit is, canonical or as written (without `\\text`); `None` if a part of it is unknown here."""
    parts = _parts(re.sub(r"\\mu\s*", "μ", text.replace(r"\Omega", "Ω")).strip())
    found = [(_single(name), power) for name, power in parts or ()]
    measures = [(unit, power) for unit, power in found if unit is not None]
    product = _product(measures) if len(measures) == len(found) else None
    return product if product and product.dimensions else None


def _parts(text: str) -> list[tuple[str, int]] | None:
    parts: list[tuple[str, int]] = []
    sign, shape, group, position, open_name = 1, 1, False, 0, False
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        position = token.end()
        if token["power"] and open_name:
            name, power = parts[-1]
            factor = {"squared": 2, "cubed": 3}.get(token["power"].strip()) or int(token["exponent"] or "")
            parts[-1], open_name = (name, power * factor), False
        elif token["name"]:
            parts.append((token["name"], sign * shape))
            sign, shape, open_name = sign if group else 1, 1, True
        elif token["shape"]:
            shape = 2 if token["shape"].startswith("sq") else 3
        elif token["power"] or (token["over"] and sign < 0) or token["open" if group else "close"]:
            return None
        elif token["over"]:
            sign, open_name = -1, False
        elif token["open"] or token["close"]:
            group, open_name = bool(token["open"]), False
            sign = sign if group else 1
    return None if group else parts


def _product(parts: Iterable[tuple[Measure, int]]) -> Measure:
    factor, dimensions = Fraction(1), Counter[str]()
    for unit, power in parts:
        factor *= unit.factor**power
        for name, count in unit.dimensions:
            dimensions[name] += count * power
    return Measure(factor, tuple(sorted((name, count) for name, count in dimensions.items() if count)))


@lru_cache(maxsize=256)
def _single(name: str) -> Measure | None:
    for unit in _PREFIXED.split(" "):
        symbol = _SYMBOLS.get(unit, unit)
        symbols = {symbol, "l"} if unit == "l" else {symbol}
        if name in symbols or re.fullmatch(UNITS[unit], name):
            return _defined(unit)
        for prefix, exponent in _PREFIXES.items():
            if name in {prefix + each for each in symbols}:
                return _scaled(unit, Fraction(10) ** exponent)
        for word, prefix in _PREFIX_NAMES.items():
            if name.startswith(word) and re.fullmatch(UNITS[unit], name[len(word) :]):
                return _scaled(unit, Fraction(10) ** _PREFIXES[prefix])
    known = name if name in UNITS else next((unit for pattern, unit in _CANONICAL if pattern.fullmatch(name)), "")
    return _defined(known) if known and known not in _LONE else None


def _scaled(unit: str, factor: Fraction) -> Measure:
    base = _defined(unit)
    return Measure(base.factor * factor, base.dimensions)


def _defined(unit: str) -> Measure:
    if unit not in _DEFINED:
        return Measure(Fraction(1), ((unit, 1),))
    number, parts = _DEFINED[unit]
    product = _product((_defined(part.strip("/")), -1 if part.startswith("/") else 1) for part in parts.split(" "))
    return Measure(Fraction(number) * product.factor, product.dimensions)


def unit_behind(text: str, position: int) -> str:
    """The unit, sign or factor right behind a box that ends at `position`, a unit after a space; may be empty."""
    found = _BEHIND.match(text, position)
    if found is None:
        return ""
    return found["joined"].strip() if found["joined"] else " " + found["unit"].strip()
