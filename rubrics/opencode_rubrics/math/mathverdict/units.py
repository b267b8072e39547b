r"""Splits a quantity into its figure and its unit.

Invariant: a letter that could be a variable is a unit only where the text marks it as one (`\text{m}`, "5 m"); units
are compared by name, never converted, because a question that asks for metres wants metres.
"""

import re

_NAMES = {
    "cm": "cm|centimet(?:er|re)s?", "mm": "mm|millimet(?:er|re)s?", "km": "km|kilomet(?:er|re)s?",
    "m": "m|met(?:er|re)s?", "in": "in|inch(?:es)?", "ft": "ft|feet|foot", "yd": "yd|yards?", "mi": "mi|miles?",
    "kg": "kg|kilograms?|kilos?", "g": "g|grams?", "mg": "mg|milligrams?", "lb": "lbs?|pounds?", "t": "t|tons?|tonnes?",
    "s": "s|secs?|seconds?", "min": "min|mins|minutes?", "h": "h|hrs?|hours?", "day": "days?", "week": "weeks?",
    "month": "months?", "year": "years?|yrs?", "l": "l|L|lit(?:er|re)s?", "ml": "ml|mL|millilit(?:er|re)s?",
    "mph": "mph|miles per hour", "km/h": "km/h|kmh|kph|kilomet(?:er|re)s per hour",
    "m/s": "m/s|met(?:er|re)s per second",
    "dollar": "dollars?|usd|USD", "cent": "cents?", "euro": "euros?|eur|EUR|€", "pound": "gbp|GBP|£",
    "degree": "degrees?|deg", "rad": "rad|radians?", "unit": "units?", "people": "people|persons?", "time": "times",
    "way": "ways", "apple": "apples?", "coin": "coins?", "square": "squares?", "point": "points?", "N": "N|newtons?",
    "J": "J|joules?", "W": "W|watts?", "V": "V|volts?", "A": "amps?|amperes?", "Hz": "Hz|hertz", "mol": "mol|moles?",
    "K": "K|kelvin", "student": "students?", "book": "books?", "ball": "balls?", "marble": "marbles?",
}  # fmt: skip
_ANY = "|".join(_NAMES.values())
_POWER = r"(?:\s*\^\s*\{?(?P<power>[23])\}?)?"
_BEFORE = r"(?:(?P<shape>sq(?:uare|\.)?|cu(?:bic|\.)?)\s+)?"
_MARKED = re.compile(rf"\\text\{{\s*{_BEFORE}(?P<name>{_ANY})\.?{_POWER.replace('power', 'inner')}\s*\}}{_POWER}$")
_SPACED = re.compile(rf"(?<=[\d)}}])\s+{_BEFORE}(?P<name>{_ANY})\.?{_POWER}$")
_JOINED = re.compile(rf"(?<=[\d)}}])(?P<name>(?:cm|mm|km|kg|mg|ml|mL|mph|ft|lbs?|Hz|km/h|m/s|rad)){_POWER}$")
_DEGREES = re.compile(r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})\s*(?P<scale>[CF])?$|\s*\\degree$")
_CURRENCY = re.compile(r"^(?P<sign>-?)\s*\\?(?P<mark>[$€£¥])\s*(?=[\d.])")
_MARKS = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
_CANONICAL = [(re.compile(pattern), name) for name, pattern in _NAMES.items()]


def split_unit(text: str) -> tuple[str, str]:
    """(figure, unit) of the spelled `text`; the unit is canonical and empty if there is none."""
    if found := _CURRENCY.match(text):
        return found["sign"] + text[found.end() :], _MARKS[found["mark"]]
    if found := _DEGREES.search(text):
        return text[: found.start()].strip(), "degree" + (found["scale"] or "")
    for pattern in (_MARKED, _SPACED, _JOINED):
        found = pattern.search(text)
        if found and found.start() > 0 and any(char.isdigit() or char == "\\" for char in text[: found.start()]):
            return text[: found.start()].strip(), _canonical(found.groupdict())
    return text, ""


def _canonical(groups: dict[str, str | None]) -> str:
    name = groups["name"] or ""
    canonical = next(known for pattern, known in _CANONICAL if pattern.fullmatch(name))
    power = groups.get("power") or groups.get("inner")
    if shape := groups.get("shape"):
        power = "2" if shape.startswith("sq") else "3"
    return canonical + (power or "")
