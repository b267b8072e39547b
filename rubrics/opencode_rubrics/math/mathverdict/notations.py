r"""Answers with a notation of their own: times of day, ratios, numerals in a base, residues.

Invariant: what stands in the notation is compared in it. "1010_3" is no "1010_2", and "3:2" is no time.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_WORD = r"(?:\\text\{\s*)?"
_TIME = re.compile(
    rf"(?P<hour>\d{{1,2}})(?:\s*\{{?:\}}?\s*(?P<minute>\d\d))?(?:\s*{_WORD}\s*(?P<half>[aApP])\s*\.?\s*[mM]\s*\.?\s*\}}?)?",
    re.ASCII,
)
_BASE = re.compile(
    rf"(?P<digits>[0-9A-Z]+)\s*_\s*(?:(?P<one>\d)|\{{\s*{_WORD}\s*(?P<base>\d+|[a-z]+)\s*\}}?\s*\}})"
    rf"|(?P<numeral>[0-9A-Z]+)\s*{_WORD}\s*\(?\s*(?:in )?base\s+(?P<named>\d+|[a-z]+)\)?\s*\}}?"
)
_NUMERALS = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_BASES = {name: str(value) for value, name in enumerate(_NUMERALS.split(" "), 2)}
_TO = re.compile(r"(\d+)\s*(?:\\text\{\s*to\s*\}|to)\s*(\d+)", re.ASCII)
_CONGRUENT = re.compile(r"^[A-Za-z](?:_\{?\w+\}?|\([^()]*\))?\s*\\equiv\s*")
_MODULUS = r"(?P<{}>[^()=<>]+)"
_RESIDUE = re.compile(
    r"(?P<left>.+?)\s*,?\s*(?:\\pmod\s*(?:\{(?P<a>[^{}]+)\}|(?P<b>\w))"
    rf"|\(\s*(?:\\(?:b|p)?mod|{_WORD}\s*mod\s*\}}?)\s*{_MODULUS.format('c')}\)"
    rf"|\\(?:bmod|mod)\s*{_MODULUS.format('d')}|{_WORD}\s*mod\s*\}}?\s*{_MODULUS.format('e')})"
)

Equal = Callable[[str, str], bool]


@dataclass(frozen=True)
class Notation:
    """`kind` is "time", "ratio", "base" or "residue"; the parts are text."""

    kind: str
    parts: tuple[str, ...]


def notation_of(text: str) -> Notation | None:
    """The notation of the spelled `text`, if it has one."""
    if (found := _TIME.fullmatch(text)) and (found["minute"] or found["half"]) and int(found["hour"]) < 25:
        half = (found["half"] or "").lower()
        if int(found["minute"] or 0) < 60:
            return Notation("time", (str(int(found["hour"])), found["minute"] or "00", half))
    if found := _BASE.fullmatch(text):
        base = found["one"] or found["base"] or found["named"]
        base = _BASES.get(base, base)
        if base.isdigit():
            return Notation("base", ((found["digits"] or found["numeral"]).lstrip("0"), base))
    if found := _TO.fullmatch(text):
        return Notation("ratio", (found[1], found[2]))
    parts = re.split(r"\s*\{?:\}?\s*", text)
    if len(parts) > 1 and all(re.fullmatch(r"[\w.\\{}^+*/()-]+(?: [\w.\\{}^+*/()-]+)*", part) for part in parts):
        return Notation("ratio", tuple(parts))
    if found := _RESIDUE.fullmatch(text):
        modulus = next(found[group] for group in "abcde" if found[group])
        return Notation("residue", (_CONGRUENT.sub("", found["left"]).strip(), modulus.strip()))
    return None


def same_notation(gold: str, given: str, equal: Equal) -> bool | None:
    """Whether two texts agree in the notation that one of them has; `None` if neither has one."""
    form, other = notation_of(gold), notation_of(given)
    if form is None and other is None:
        return None
    if form and other and {form.kind, other.kind} == {"time", "ratio"}:
        form, other = (one if one.kind == "ratio" else Notation("ratio", one.parts[:2]) for one in (form, other))
    if form and other:
        return form.kind == other.kind and _SAME[form.kind](form.parts, other.parts, equal)
    if form:
        return _bare_for(form, given, equal)
    return _added(gold, other, equal) if other else None


def _bare_for(form: Notation, given: str, equal: Equal) -> bool:
    """Whether a bare answer is enough for the reference's notation."""
    if form.kind == "base":
        return given.strip("{} ").lstrip("0") == form.parts[0]
    numbers = form.parts[:2] if form.kind == "time" and not form.parts[2] else form.parts
    if form.kind in {"ratio", "time"} and len(numbers) == 2:
        return equal(f"({numbers[0]})/({numbers[1]})", given)
    return False


def _added(gold: str, other: Notation, equal: Equal) -> bool:
    """Whether an answer in a notation says the same as a reference without it."""
    if other.kind == "ratio" and len(other.parts) == 2:
        return equal(gold, f"({other.parts[0]})/({other.parts[1]})")
    if other.kind == "time" and not other.parts[2]:
        return equal(gold, f"({other.parts[0]})/({other.parts[1]})")
    if other.kind == "residue":
        left, modulus = other.parts
        reduced = left.isdigit() and modulus.isdigit() and len(left) <= 30 >= len(modulus) and int(left) < int(modulus)
        return reduced and gold.lstrip("0") == left.lstrip("0")
    return False


def _same_time(left: tuple[str, ...], right: tuple[str, ...], _: Equal) -> bool:
    return left[:2] == right[:2] and (left[2] == right[2] or not left[2])


def _same_base(left: tuple[str, ...], right: tuple[str, ...], _: Equal) -> bool:
    return left == right


def _same_ratio(left: tuple[str, ...], right: tuple[str, ...], equal: Equal) -> bool:
    if len(left) != len(right):
        return False
    return all(
        equal(f"({a})\\cdot({right[0]})", f"({b})\\cdot({left[0]})") for a, b in zip(left[1:], right[1:], strict=True)
    )


def _same_residue(left: tuple[str, ...], right: tuple[str, ...], equal: Equal) -> bool:
    if not equal(left[1], right[1]):
        return False
    whole = all(re.fullmatch(r"-?\d{1,30}", text) for text in (left[0], right[0], left[1])) and int(left[1]) != 0
    return equal(left[0], right[0]) or (whole and (int(left[0]) - int(right[0])) % int(left[1]) == 0)


_SAME = {"time": _same_time, "base": _same_base, "ratio": _same_ratio, "residue": _same_residue}
