r"""Quantities: a figure with what it counts or measures, converted where both units measure the same dimension.

Invariant: a letter that could be a variable is a unit only where the text marks it as one (`\text{m}`, "5 m"). Words
behind a figure that are not a known unit stay; they never vanish from an answer. A figure without a unit is never
converted, and a sum of parts ("2 hours 15 minutes") needs its units.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, starmap

from .expressions import real_number
from .numbers import Plain, read_number, same_number
from .units import COUNTED, UNITS, Measure, measure

_ADJECTIVES = (
    "different|distinct|possible|such|positive|ordered|unordered|valid|distinguishable|integer|lattice|red|blue|green|"
    "white|black"
)
_ONE = "|".join(UNITS.values())
_ANY = rf"(?:{_ONE})(?:\s*(?:/|per)\s*(?:{_ONE}))?"
_RATE = re.compile(r"\s*(?:/|\bper\b)\s*")
_STACKED = re.compile(
    r"\\frac\s*\{\s*\\text\{\s*([^{}]+?)\s*\}\s*\}\s*\{\s*\\text\{\s*([^{}]+?)\s*\}\s*(\^\s*\{?\d\}?)?\s*\}$"
)
_PART = re.compile(
    rf"\s*(?P<figure>\d[\d./]*+)\s*(?:\\text\{{\s*(?P<marked>{_ONE})\s*,?\s*\}}|(?P<plain>{_ONE})(?![A-Za-z]))\s*,?\s*"
    r"(?:(?:\\text\{)?\s*and\s*\}?)?"
)
_DOUBTFUL = frozenset("KTAVWCF")
_POWER = r"(?:\s*\^\s*\{?(?P<power>[23])\}?)?"
_BEFORE = r"(?:(?P<shape>sq(?:uare|\.)?|cu(?:bic|\.)?)\s+)?"
_MARKED = re.compile(
    rf"\\text\{{\s*{_BEFORE}(?P<name>{_ANY})\.?{_POWER.replace('power', 'inner')}"
    rf"\s*(?P<squared>squared|cubed)?\s*\}}{_POWER}$"
)
_SPACED = re.compile(rf"(?<=[\d)}}\w])\s+{_BEFORE}(?P<name>{_ANY})\.?{_POWER}(?:\s+(?P<squared>squared|cubed))?$")
_JOINED = re.compile(
    rf"(?<=[\d)}}])(?P<name>(?:cm|mm|km|kg|mg|ml|mL|mph|ft|lbs?|Hz|kHz|km/h|km/hr|m/s|rad|kJ|kPa|kW|oz|min|¢)){_POWER}$"
)
_DEGREES = re.compile(
    r"\s*(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree)\s*(?:\\text\{\s*(?P<marked>[CFK])\s*\}|(?P<scale>[CF]))?$"
)
_MINUTES = re.compile(
    r"(?P<degrees>-?\d+)\s*\^\s*\{?\s*\\circ\s*\}?\s*(?P<minutes>\d+)\s*(?:'|\^\s*\{?\s*\\prime\s*\}?)"
    r"(?:\s*(?P<seconds>\d+)\s*(?:''|\"|\^\s*\{\s*\\prime\s*\\prime\s*\}))?"
)
_COMPOUND = (
    re.compile(r"(?P<figure>.*?[\d)}])\s*(?P<unit>(?:\\mu\s*)?\\text\s*\{.*)", re.DOTALL),
    re.compile(
        r"(?P<figure>[+-]?[\d.,]*\d(?:\s*\\cdot\s*10\s*\^\s*\{?-?\d+\}?)?)\s+"
        r"(?P<unit>\(?[A-Za-z]++\)?(?:\^\{?-?\d\}?)?\s*(?:/|per\b).*|[kMmuμ]?\s*\\(?:Omega|mu)\s*[A-Za-z]?"
        r"|(?:k?[NJWVAC]|kg|k?Pa|lb|ft)(?:\s*(?:\\cdot\s*)?[A-Za-z]++(?:\s*\^\s*\{?-?\d\}?)?)+(?:\s*/.*)?"
        r"|(?:[A-Za-z]++(?:\s*\^\s*\{?\d\}?)?\s*(?:\\cdot\s*)?)*?[A-Za-z]++\s*\^\s*\{?-\d\}?)"
    ),
)
_CURRENCY = re.compile(r"^(?P<sign>-?)\s*\\?(?P<mark>[$€£¥])\s*(?=[\d.])")
_MARKS = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
_CANONICAL = [(re.compile(pattern), name) for name, pattern in UNITS.items()]
_TRAILING = re.compile(
    r"(?<=[\d)}%])(?:\s*\\text\{\s*(?P<marked>[A-Za-z][A-Za-z .'-]+?)\s*\}"
    r"|\s+(?P<plain>[A-Za-z]{3,}(?:[ -][A-Za-z']+){0,3}))$"
)
_OF = re.compile(r"^(?:of (?:the|an?|all|his|her|their|its)(?: (?:the|whole|entire|total))?) ")
Equal = Callable[[str, str], bool]
_DIRECTIONS = frozenset({"increase", "decrease", "profit", "loss", "gain", "drop", "discount"})
_FULL_TURN = 7
"""Above 2π a bare reference for an angle is in degrees."""


@dataclass(frozen=True)
class Quantity:
    figure: str
    unit: str = ""
    known: bool = True
    """Whether the unit is one that an answer may add of itself."""


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
        return _angle(found.groupdict())
    if compound := _compound(text):
        return compound
    for pattern in (_MARKED, _SPACED, _JOINED):
        found = pattern.search(text)
        if found and found.start() > 0 and any(char.isdigit() or char == "\\" for char in text[: found.start()]):
            unit = _canonical(found.groupdict())
            return Quantity(text[: found.start()].strip(), unit, known=unit not in _DOUBTFUL)
    if marked := _marked(text):
        return marked
    if (found := _TRAILING.search(text)) and any(char.isdigit() for char in text[: found.start()]):
        return _counted(text[: found.start()].strip(), found["marked"] or found["plain"])
    return Quantity(text)


def _angle(groups: dict[str, str | None]) -> Quantity:
    minutes, seconds = int(groups["minutes"] or 0), int(groups["seconds"] or 0)
    if minutes > 59 or seconds > 59:
        return Quantity("", "no angle", known=False)
    degrees = abs(int(groups["degrees"] or 0)) * 3600 + minutes * 60 + seconds
    sign = "-" if (groups["degrees"] or "").startswith("-") else ""
    return Quantity(f"{sign}\\frac{{{degrees}}}{{3600}}", "degree")


def _compound(text: str) -> Quantity | None:
    r"""A quantity in a unit made of several, such as `\text{J/(mol K)}`, or with a Greek letter."""
    for pattern in _COMPOUND:
        if (found := pattern.fullmatch(text)) is None or not measure(unit := _bare_unit(found)):
            continue
        several = len(re.findall(r"[A-Za-z]+", unit)) > 1 or "-" in unit
        if several and "squ" not in unit and "cub" not in unit:
            known = "\\text" in found["unit"] or "/" in unit or "per" in unit
            return Quantity(found["figure"].strip(), unit, known)
        if r"\Omega" in unit:
            return Quantity(found["figure"].strip(), unit, known=False)
    return None


def _marked(text: str) -> Quantity | None:
    r"""A quantity in one unit that only `\text` and a figure before it tell from a letter, such as `5\text{ nC}`."""
    found = _COMPOUND[0].fullmatch(text)
    if found is None or (unit := _bare_unit(found)) in {"pm", "am", "Pm", "d", "k"} or not measure(unit):
        return None
    return Quantity(found["figure"].strip(), unit, known="^" in unit)


def _bare_unit(found: "re.Match[str]") -> str:
    return re.sub(r"\\text\s*", " ", found["unit"]).replace("{", "").replace("}", "").strip()


def _counted(figure: str, words: str) -> Quantity:
    parts = _OF.sub("", words.casefold()).replace("-", " ").replace(".", " ").split()
    names = [_singular(part) for part in parts if not re.fullmatch(_ADJECTIVES, part)]
    known = bool(names) and all(name in COUNTED for name in names)
    return Quantity(figure, " ".join(names) or words, known)


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
        found.append(Quantity(match["figure"], _canonical({"name": match["marked"] or match["plain"]})))
        position = match.end()
    if position < len(text) or len(found) < 2:
        return []
    return found if all(starmap(_is_part, pairwise(found))) else []


def _is_part(whole: Quantity, part: Quantity) -> bool:
    number, scale = read_number(part.figure), _scale(whole.unit, part.unit)
    return number is not None and scale is not None and scale < 1 and number.value * scale < 1


def _same_unit(gold: Quantity, given: Quantity) -> bool:
    """Whether the units allow the figures to be the same: an answer may leave a unit out, or add a known one."""
    if not given.unit:
        return gold.unit not in _DIRECTIONS
    return gold.unit == given.unit if gold.unit else given.known


def _canonical(groups: dict[str, str | None]) -> str:
    name = groups["name"] or ""
    canonical = next((known for pattern, known in _CANONICAL if pattern.fullmatch(name)), "")
    if not canonical:
        canonical = "/".join(_canonical({"name": part}) for part in _RATE.split(name))
    power = groups.get("power") or groups.get("inner")
    if word := groups.get("shape") or groups.get("squared"):
        power = "2" if word.startswith("sq") else "3"
    return canonical + (power or "")


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
        converted = Plain(number.value * scale, number.rounded, number.percent)
        return same_number(wanted, converted) if wanted else equal(gold.figure, str(converted.value))
    angles = _same_angle(gold, given, equal)
    if angles is not None:
        return angles
    if given.unit == "cent" and not gold.unit:
        # Like a percent sign it makes the figure a hundredth.
        return False
    if given.unit == "degree" and not gold.unit:
        value = real_number(gold.figure)
        if value is None or value <= _FULL_TURN:
            return False
    return _same_unit(gold, given) and equal(gold.figure, given.figure)


def _same_angle(gold: Quantity, given: Quantity, equal: Equal) -> bool | None:
    """Whether two angles are the same, of which one is in degrees and the other in radians; else `None`."""
    # A multiple of π without a unit, beside degrees, is in radians.
    units = {side.unit or ("rad" if r"\pi" in side.figure else "") for side in (gold, given)}
    if units != {"degree", "rad"}:
        return None
    turn = r"\frac{180}{\pi}" if gold.unit == "degree" else r"\frac{\pi}{180}"
    return equal(gold.figure, rf"({given.figure})\cdot {turn}")


def same_parts(gold: str, given: str) -> bool | None:
    """Whether two texts of which one has several parts ("2 h 15 min") are the same amount; `None` if neither has."""
    if not _parts_of(gold) and not _parts_of(given):
        return None
    left, right = (_total(_parts_of(text) or [quantity_of(text)]) for text in (gold, given))
    return left is not None and right is not None and left[1] == right[1] and same_number(left[0], right[0])


def _scale(gold: str, given: str) -> Fraction | None:
    """How many of the reference's unit one of the answer's is; `None` if they are not of one dimension."""
    left, right = measure(gold), measure(given)
    if left is None or right is None or left.dimensions != right.dimensions:
        return None
    return right.factor / left.factor


def _total(parts: list[Quantity]) -> tuple[Plain, tuple[tuple[str, int], ...]] | None:
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
