r"""Splits a quantity into its figure and what it counts or measures.

Invariant: a letter that could be a variable is a unit only where the text marks it as one (`\text{m}`, "5 m"); units
are compared by name, never converted, because a question that asks for metres wants metres. Words behind a figure that
are no unit known here are kept as they are: they never vanish from an answer.
"""

import re
from dataclasses import dataclass

_NAMES = {
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
    "mph": "mph|miles per hour|mi/h", "km/h": r"km/h|km/hr|kmh|kph|kilomet(?:er|re)s per hour",
    "m/s": r"m/s|met(?:er|re)s per second", "m/s2": r"m/s\^?\{?2\}?|met(?:er|re)s per second squared",
    "ft/s": "ft/s|ft/sec|feet per second", "rpm": "rpm|revolutions per minute",
    "dollar": "dollars?|usd|USD|bucks", "cent": "cents?|¢", "euro": "euros?|eur|EUR|€", "pound": "gbp|GBP|£",
    "yen": "yen", "yuan": "yuan|rmb|RMB", "rupee": "rupees?|Rs", "ruble": "rubles?|roubles?",
    "degree": "degrees?|deg", "degreeC": "(?:degrees? )?(?:celsius|Celsius)|degrees? C",
    "degreeF": "(?:degrees? )?(?:fahrenheit|Fahrenheit)|degrees? F", "rad": "rad|radians?", "K": "K|kelvins?",
    "unit": "units?", "N": "N|newtons?", "kN": "kN|kilonewtons?", "J": "J|joules?", "kJ": "kJ|kilojoules?",
    "MJ": "MJ|megajoules?", "eV": "eV", "cal": "cal|calories?", "kcal": "kcal", "W": "W|watts?", "kW": "kW|kilowatts?",
    "MW": "MW|megawatts?", "kWh": "kWh", "V": "V|volts?", "kV": "kV|kilovolts?", "mV": "mV|millivolts?",
    "A": "A|amps?|amperes?", "mA": "mA|milliamps?", "ohm": "ohms?", "Hz": "Hz|hertz", "kHz": "kHz", "MHz": "MHz",
    "GHz": "GHz", "Pa": "Pa|pascals?", "kPa": "kPa|kilopascals?", "MPa": "MPa|megapascals?", "atm": "atm|atmospheres?",
    "mol": "mol|moles?", "T": "T|teslas?", "C": "coulombs?", "F": "farads?", "bit": "bits?", "byte": "bytes?",
    "KB": "KB|kB|kilobytes?", "MB": "MB|megabytes?", "GB": "GB|gigabytes?", "people": "people|persons?",
}  # fmt: skip
_COUNTED = frozenset(
    (
        "time way apple orange banana coin square point student book ball marble game ticket page boy girl child man "
        "woman men women adult member player team car bus seat chair table room house card dice die cube box bag "
        "bottle cookie candy cake pizza slice piece egg flower tree plant animal dog cat bird fish cow horse chicken "
        "sheep rabbit worker employee teacher guest visitor customer passenger friend letter word digit number integer "
        "solution root value pair triple triplet tuple set subset element term factor divisor multiple prime vertex "
        "vertices edge face side angle diagonal triangle rectangle circle line segment region path route step move "
        "turn round match arrangement permutation combination outcome possibility case pattern sequence string code "
        "color colour tile block brick stone stick pencil pen sticker stamp toy shirt hat shoe sock pant dress gift "
        "envelope key lock door window floor stair problem question mark vote signal lap trip train plane boat "
        "truck wheel bike bicycle row column cell handshake committee function polynomial zero intersection "
        "revolution rotation gram item person kid sandwich muffin donut doughnut cupcake pie lemon peach pear plum "
        "grape strawberry cherry orange mango carrot potato tomato bean seed leaf petal rose ways widget photo "
        "picture song movie video minute square's lattice"
    ).split()
)
_ADJECTIVES = "different|distinct|possible|such|total|more|positive|ordered|unordered|valid|distinguishable|integer|lattice|red|blue|green|white|black"
_ANY = "|".join(_NAMES.values())
_POWER = r"(?:\s*\^\s*\{?(?P<power>[23])\}?)?"
_BEFORE = r"(?:(?P<shape>sq(?:uare|\.)?|cu(?:bic|\.)?)\s+)?"
_MARKED = re.compile(
    rf"\\text\{{\s*{_BEFORE}(?P<name>{_ANY})\.?{_POWER.replace('power', 'inner')}\s*(?P<squared>squared|cubed)?\s*\}}{_POWER}$"
)
_SPACED = re.compile(rf"(?<=[\d)}}\w])\s+{_BEFORE}(?P<name>{_ANY})\.?{_POWER}(?:\s+(?P<squared>squared|cubed))?$")
_JOINED = re.compile(
    rf"(?<=[\d)}}])(?P<name>(?:cm|mm|km|kg|mg|ml|mL|mph|ft|lbs?|Hz|kHz|km/h|m/s|rad|kJ|kPa|kW|oz|min|¢)){_POWER}$"
)
_DEGREES = re.compile(
    r"\s*(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree)\s*(?:\\text\{\s*(?P<marked>[CFK])\s*\}|(?P<scale>[CF]))?$"
)
_CURRENCY = re.compile(r"^(?P<sign>-?)\s*\\?(?P<mark>[$€£¥])\s*(?=[\d.])")
_MARKS = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
_CANONICAL = [(re.compile(pattern), name) for name, pattern in _NAMES.items()]
_TRAILING = re.compile(
    r"(?<=[\d)}%])(?:\s*\\text\{\s*(?P<marked>[A-Za-z][A-Za-z .'-]+?)\s*\}|\s+(?P<plain>[A-Za-z]{3,}(?:[ -][A-Za-z']+){0,3}))$"
)
_UP = r"increased?s?|rise|growth|gain|higher|more"
_DOWN = r"decreased?s?|drop|reduction|fall|lower|less|discount"
_CHANGE = (
    (re.compile(rf"^(?:an? )?(?:\\text\{{\s*)?(?P<name>{_UP}|{_DOWN}|profit|loss)\s*(?:of|by)\s*(?:\}})?\s*(?P<figure>.+)$"), None),
    (re.compile(rf"^(?P<figure>.*[\d%}}])\s*(?:\\text\{{\s*)?\s*(?P<name>{_UP}|{_DOWN}|profit|loss)\s*\}}?$"), None),
)


@dataclass(frozen=True)
class Quantity:
    """A figure and its unit."""

    figure: str
    unit: str = ""
    known: bool = True
    """Whether the unit is one that an answer may add of itself."""
    needed: bool = False
    """Whether the unit changes what the figure says, so that both sides must have it."""


def quantity_of(text: str) -> Quantity:
    """The spelled `text` as a quantity; the unit is canonical and empty if there is none."""
    if found := _CURRENCY.match(text):
        rest = quantity_of(text[found.end() :])
        if rest.unit in {"", _MARKS[found["mark"]]}:
            return Quantity(found["sign"] + rest.figure, _MARKS[found["mark"]])
        return Quantity(text)
    if found := _DEGREES.search(text):
        return Quantity(text[: found.start()].strip(), "degree" + (found["marked"] or found["scale"] or ""))
    for pattern, _ in _CHANGE:
        if found := pattern.match(text):
            return Quantity(found["figure"].strip(), _direction(found["name"]), needed=True)
    for pattern in (_MARKED, _SPACED, _JOINED):
        found = pattern.search(text)
        if found and found.start() > 0 and any(char.isdigit() or char == "\\" for char in text[: found.start()]):
            return Quantity(text[: found.start()].strip(), _canonical(found.groupdict()))
    if (found := _TRAILING.search(text)) and any(char.isdigit() for char in text[: found.start()]):
        return _counted(text[: found.start()].strip(), found["marked"] or found["plain"])
    return Quantity(text)


def _direction(name: str) -> str:
    if name in {"profit", "loss"}:
        return name
    return "increase" if re.fullmatch(_UP, name) else "decrease"


def _counted(figure: str, words: str) -> Quantity:
    parts = [part for part in words.casefold().replace("-", " ").replace(".", " ").split() if not re.fullmatch(_ADJECTIVES, part)]
    names = [_singular(part) for part in parts]
    known = bool(names) and all(name in _COUNTED for name in names)
    return Quantity(figure, " ".join(names) or words, known)


def _singular(word: str) -> str:
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 1 and not word.endswith("ss"):
            return word.removesuffix(ending) + replacement
    return word


def same_unit(gold: Quantity, given: Quantity) -> bool:
    """Whether the units allow the figures to be the same: an answer may leave a unit out, or add a known one."""
    if gold.needed or given.needed:
        return gold.unit == given.unit
    if not given.unit:
        return True
    return gold.unit == given.unit if gold.unit else given.known


def _canonical(groups: dict[str, str | None]) -> str:
    name = groups["name"] or ""
    canonical = next(known for pattern, known in _CANONICAL if pattern.fullmatch(name))
    power = groups.get("power") or groups.get("inner")
    if word := groups.get("shape") or groups.get("squared"):
        power = "2" if word.startswith("sq") else "3"
    return canonical + (power or "")
