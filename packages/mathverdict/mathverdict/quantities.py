r"""Quantities: a figure with what it counts or measures, converted where both units measure the same dimension.

Invariant: a letter that could be a variable is a unit only where the text marks it as one (`\text{m}`, "5 m"). Words
behind a figure that are not a known unit stay. A figure without a unit is never converted. A factor between units is an
exact rational; what is not a multiple of another unit (degrees of temperature, months) is a dimension of its own.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, starmap
from typing import NamedTuple

from .values import PlainNumber, read_number, real_number, same_number

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
    "class total work job distance tank money whole day hour year week town population "
    "molecule atom electron proton neutron particle photon ion"
)
COUNTED = frozenset(_COUNTED_NAMES.split(" "))
_PREFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "d": -1, "c": -2, "m": -3, "μ": -6, "u": -6, "n": -9, "p": -12}
_PREFIX_NAMES = {
    "": 0, "kilo": 3, "mega": 6, "giga": 9, "centi": -2, "milli": -3, "micro": -6, "nano": -9, "pico": -12,
}  # fmt: skip
_PREFIXED = "m g s l N J W V A Hz Pa eV ohm F C T mol cal bit byte"
_SYMBOLS = {"l": "[lL]", "ohm": "Ω", "bit": "b", "byte": "B"}
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
_CANONICAL = [(re.compile(pattern), name) for name, pattern in UNITS.items() if "/" not in name]
_TOKEN = re.compile(
    r"\s*(?:(?P<power>\^?\s*\{?\s*(?P<exponent>-?\d)\s*\}?|squared\b|cubed\b)|(?P<over>/|per\b|\bp(?=er\b))|(?P<open>\()"
    r"|(?P<close>\))|(?P<times>\\cdot|\\times|[·*.-])|(?P<shape>square|sq\.?|cubic|cu\.?)\s|(?P<name>[A-Za-zμΩ]+))"
)
_ONE = "|".join(UNITS.values())
_BEHIND = re.compile(
    r"(?P<joined>(?:\^\s*(?!\{?\s*\\circ)\{?[-+]?\w+\}?|\.\d+|[A-Za-z](?![A-Za-z])"
    r"|(?:\\[,;:]|\s)*(?:\\pi(?![A-Za-z])|\\(?:times|cdot)\s*10\s*\^\s*\{?-?\d+\}?)))"
    r"|(?:\\[,;: )]|[\s$~])*(?P<unit>\\?%|\^\s*(?:\\circ|\{\s*\\circ\s*\})|°"
    rf"|\\(?:text|mathrm)\s*\{{\s*(?:{_ONE})[^{{}}]*\}}(?:\^\{{?[23]\}}?)?"
    rf"|(?:percent|hundred|thousand|million|billion|dozen|(?!(?:in|m|s|h|g|l|A|C|T|K|V|W|N|J|F|t)\b)(?:{_ONE})"
    rf"(?:\s*/\s*(?:{_ONE})|\s*\^\s*\{{?[23]\}}?|²|³)?)(?![A-Za-z/^]))"
)
_ADJECTIVES = (
    "different|distinct|possible|such|positive|ordered|unordered|valid|distinguishable|integer|lattice|red|blue|green|"
    "white|black"
)
_ONE_OR_RATE = rf"(?:{_ONE})(?:\s*(?:/|per)\s*(?:{_ONE}))?"
_STACKED = re.compile(
    r"\\frac\s*\{\s*\\text\{\s*([^{}]+?)\s*\}\s*\}\s*\{\s*\\text\{\s*([^{}]+?)\s*\}\s*(\^\s*\{?\d\}?)?\s*\}$"
)
_PART = re.compile(
    rf"\s*(?P<figure>\d[\d./]*+)\s*(?:\\text\{{\s*(?P<marked>{_ONE})\s*,?\s*\}}|(?P<plain>{_ONE})(?![A-Za-z]))\s*,?\s*"
    r"(?:(?:\\text\{)?\s*and\s*\}?)?"
)
_DOUBTFUL = frozenset("KTAVWCF")
_NO_UNITS = frozenset({"pm", "am", "Pm", "d", "k"})
_POWER = r"(?:\s*\^\s*\{?[23]\}?)?"
_DEGREES = re.compile(
    r"\s*(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree)\s*(?:\\text\{\s*(?P<marked>[CFK])\s*\}|(?P<scale>[CF]))?$"
)
_MINUTES = re.compile(
    r"(?P<sign>-?)(?P<degrees>\d+)\s*\^\s*\{?\s*\\circ\s*\}?\s*(?P<minutes>[0-5]?\d)\s*(?:'|\^\s*\{?\s*\\prime\s*\}?)"
    r"(?:\s*(?P<seconds>[0-5]?\d)\s*(?:''|\"|\^\s*\{\s*\\prime\s*\\prime\s*\}))?"
)
_UNIT_BEHIND = (
    re.compile(r"\A.*?[\w)}]\s*(?P<unit>(?:\\mu\s*)?\\text\s*\{.*)", re.DOTALL),
    re.compile(
        r"\A[+-]?[\d.,]*\d(?:\s*\\cdot\s*10\s*\^\s*\{?-?\d+\}?)?\s+"
        r"(?P<unit>\(?[A-Za-z]++\)?(?:\^\{?-?\d\}?)?\s*(?:/|per\b).*|[kMmuμ]?\s*\\(?:Omega|mu)\s*[A-Za-z]?"
        r"|(?:k?[NJWVAC]|kg|k?Pa|lb|ft)(?:\s*(?:\\cdot\s*)?[A-Za-z]++(?:\s*\^\s*\{?-?\d\}?)?)+(?:\s*/.*)?"
        r"|(?:[A-Za-z]++(?:\s*\^\s*\{?\d\}?)?\s*(?:\\cdot\s*)?)*?[A-Za-z]++\s*\^\s*\{?-\d\}?)\Z"
    ),
    re.compile(
        rf"(?<=[\w)}}])\s+(?P<unit>(?:(?:sq(?:uare|\.)?|cu(?:bic|\.)?)\s+)?{_ONE_OR_RATE}\.?{_POWER}"
        r"(?:\s+(?:squared|cubed))?)\Z"
    ),
    re.compile(
        r"(?<=[\d)}])(?P<unit>(?:cm|mm|km|kg|mg|ml|mL|mph|ft|lbs?|Hz|kHz|km/h|km/hr|m/s|rad|kJ|kPa|kW|oz|min|¢)"
        rf"{_POWER})\Z"
    ),
)
_CURRENCY = re.compile(r"^(?P<sign>-?)\s*\\?(?P<mark>[$€£¥])\s*(?=[\d.])")
_MARKS = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
_NAMES = [(re.compile(pattern), name) for name, pattern in UNITS.items()]
_TRAILING = re.compile(
    r"(?<=[\d)}%])(?:\s*\\text\{\s*(?P<marked>[A-Za-z][A-Za-z .'-]+?)\s*\}"
    r"|\s+(?P<plain>[A-Za-z]{3,}(?:[ -][A-Za-z']+){0,3}))$"
)
_OF = re.compile(r"^(?:of (?:the|an?|all|his|her|their|its)(?: (?:the|whole|entire|total))?) ")
Equal = Callable[[str, str], bool]
_DIRECTIONS = frozenset({"increase", "decrease", "profit", "loss", "gain", "drop", "discount"})
_FULL_CIRCLE = 7
"""Above 2π a bare reference for an angle is in degrees."""


class Quantity(NamedTuple):
    figure: str
    unit: str = ""
    known: bool = True
    """Whether the unit is one that an answer may add of itself."""


class Measure(NamedTuple):
    """Tells how much of which dimensions a unit is."""

    factor: Fraction
    dimensions: tuple[tuple[str, int], ...]


def quantity_of(text: str) -> Quantity:
    """The spelled `text` as a quantity; the unit is canonical and empty if there is none."""
    text = _STACKED.sub(r"\\text{\1/\2}\3", text)
    if found := _CURRENCY.match(text):
        rest = quantity_of(text[found.end() :])
        if rest.unit in {"", _MARKS[found["mark"]]}:
            return Quantity(found["sign"] + rest.figure, _MARKS[found["mark"]])
        return Quantity(text)
    if found := _DEGREES.search(text):
        return Quantity(text[: found.start()].strip(), "degree" + (found["marked"] or found["scale"] or ""))
    if found := _MINUTES.fullmatch(text):
        seconds = 60 * int(found["minutes"]) + int(found["seconds"] or 0)
        return Quantity(f"{found['sign']}({found['degrees']}+\\frac{{{seconds}}}{{3600}})", "degree")
    for pattern in _UNIT_BEHIND:
        found = pattern.search(text)
        if found and re.search(r"[\d\\]", figure := text[: found.start("unit")]) and (unit := _unit(found["unit"])):
            return Quantity(figure.strip(), *unit)
    if (found := _TRAILING.search(text)) and any(char.isdigit() for char in text[: found.start()]):
        figure, words = text[: found.start()].strip(), found["marked"] or found["plain"]
        parts = _OF.sub("", words.casefold()).replace("-", " ").replace(".", " ").split()
        names = [_singular(part) for part in parts if not re.fullmatch(_ADJECTIVES, part)]
        known = bool(names) and all(name in COUNTED for name in names)
        return Quantity(figure, " ".join(names) or words, known)
    return Quantity(text)


def _unit(text: str) -> tuple[str, bool] | None:
    """The name of a unit, or itself if it is made of several, and whether an answer may add it."""
    bare = re.sub(r"\\text\s*", " ", text).replace("{", "").replace("}", "").strip(" .")
    name = _named(bare)
    if name in _NO_UNITS or not measure(name):
        return None
    return name, name not in _DOUBTFUL


def _named(text: str) -> str:
    return next((name for pattern, name in _NAMES if pattern.fullmatch(text)), text)


def _singular(word: str) -> str:
    if word.removesuffix("s") in COUNTED:
        return word.removesuffix("s")
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 1 and not word.endswith("ss"):
            return word.removesuffix(ending) + replacement
    return word


def _parts_of(text: str) -> list[Quantity]:
    """The parts of one amount, such as "3 hours 20 minutes": each less than one of the unit before it; else empty."""
    found, position = [], 0
    while match := _PART.match(text, position):
        found.append(Quantity(match["figure"], _named(match["marked"] or match["plain"])))
        position = match.end()
    if position < len(text) or len(found) < 2:
        return []
    return found if all(starmap(_is_part, pairwise(found))) else []


def _is_part(whole: Quantity, part: Quantity) -> bool:
    number, scale = read_number(part.figure), _scale(whole.unit, part.unit)
    return number is not None and scale is not None and scale < 1 and number.value * scale < 1


def same_quantity(gold: Quantity, given: Quantity, equal: Equal) -> bool:
    """Whether an answer is the reference's quantity, in its unit, another of that dimension, or without one."""
    if given.unit and quantity_of(given.figure).unit:
        return False
    scale = _scale(gold.unit, given.unit)
    if scale is not None:
        number = read_number(given.figure)
        if scale == 1:
            return equal(gold.figure, given.figure)
        if number is None:
            return equal(gold.figure, rf"\frac{{{scale.numerator}}}{{{scale.denominator}}}\cdot ({given.figure})")
        wanted = read_number(gold.figure)
        converted = PlainNumber(number.value * scale, number.rounded, number.percent)
        return same_number(wanted, converted) if wanted else equal(gold.figure, str(converted.value))
    # A multiple of π without a unit, beside degrees, is in radians.
    if {side.unit or ("rad" if r"\pi" in side.figure else "") for side in (gold, given)} == {"degree", "rad"}:
        factor = r"\frac{180}{\pi}" if gold.unit == "degree" else r"\frac{\pi}{180}"
        return equal(gold.figure, rf"({given.figure})\cdot {factor}")
    return _same_unit(gold, given) and equal(gold.figure, given.figure)


def _same_unit(gold: Quantity, given: Quantity) -> bool:
    """Whether the units allow the figures to be the same: an answer may leave a unit out, or add a known one."""
    if not given.unit:
        return gold.unit not in _DIRECTIONS
    if gold.unit:
        return gold.unit == given.unit
    if given.unit == "degree":
        value = real_number(gold.figure)
        return value is not None and bool(value > _FULL_CIRCLE)
    # Like a percent sign, cents make the figure a hundredth.
    return given.known and given.unit != "cent"


def same_parts(gold: str, given: str) -> bool | None:
    """Whether two texts of which one has several parts ("2 h 15 min") are the same amount; `None` if neither has."""
    parts = [_parts_of(text) for text in (gold, given)]
    if not any(parts):
        return None
    wanted, found = (found or [quantity_of(text)] for found, text in zip(parts, (gold, given), strict=True))
    left, right = (_total(amounts, wanted[0].unit) for amounts in (wanted, found))
    return left is not None and right is not None and same_number(left, right)


def _total(amounts: list[Quantity], unit: str) -> PlainNumber | None:
    numbers = [read_number(amount.figure) for amount in amounts]
    scales = [_scale(unit, amount.unit) for amount in amounts]
    pairs = [(number, scale) for number, scale in zip(numbers, scales, strict=True) if number and scale]
    if len(pairs) < len(amounts) or any(number.percent for number, _ in pairs):
        return None
    value = sum((number.value * scale for number, scale in pairs), Fraction(0))
    return PlainNumber(value, any(number.rounded for number, _ in pairs))


def _scale(gold: str, given: str) -> Fraction | None:
    """Return how many of the reference's unit one of the answer's is; `None` if they are not of one dimension."""
    left, right = measure(gold), measure(given)
    if left is None or right is None or left.dimensions != right.dimensions:
        return None
    return right.factor / left.factor


def measure(text: str) -> Measure | None:
    """Return what a unit is, canonical or as written (without `\\text`); `None` if a part of it is unknown here."""
    if text in UNITS and " " in text:
        return _defined(text)
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
        for prefixes, names in ((_PREFIXES, _SYMBOLS.get(unit, unit)), (_PREFIX_NAMES, UNITS[unit])):
            for prefix, exponent in prefixes.items():
                if name.startswith(prefix) and re.fullmatch(names, name[len(prefix) :]):
                    base = _defined(unit)
                    return Measure(base.factor * Fraction(10) ** exponent, base.dimensions)
    known = name if name in UNITS else next((unit for pattern, unit in _CANONICAL if pattern.fullmatch(name)), "")
    return _defined(known) if known else None


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
