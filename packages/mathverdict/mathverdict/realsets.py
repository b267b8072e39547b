r"""Sets of real numbers: intervals, their unions, inequalities in one variable, `\mathbb{R}` without some points.

Invariant: a set is its sorted pieces, disjoint and as long as they can be, so that two texts mean the same set if and
only if their pieces are the same.
"""

import re
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from .expressions import real_number, same_value
from .relations import ORDERS, Relation, relation_of, split_top
from .structure import structure_of
from .values import SLACK, real

_INFINITE = re.compile(r"(?P<sign>[+-]?)\s*\\infty")
_REALS = r"\\mathbb\s*\{?\s*R\s*\}?"
_WITHOUT = re.compile(rf"^{_REALS}\s*(?:\\backslash(?![a-z])|-|/)\s*(?=\\\{{)")
_REALS_OF_ONE_SIGN = re.compile(
    rf"{_REALS}\s*(?P<mark>(?:[_^]\s*(?:\{{\s*(?:[+\-*0]|\\cdot|(?:>|<|\\ge|\\le|\\ne)\s*0)\s*\}}|[+\-*0])\s*)*)"
)
_OF_ONE_SIGN = {
    "": r"(-\infty,\infty)",
    **dict.fromkeys(("+", ">", "*+"), r"(0,\infty)"),
    **dict.fromkeys(("-", "<", "*-"), r"(-\infty,0)"),
    **dict.fromkeys(("+0", r"\ge"), r"[0,\infty)"),
    **dict.fromkeys(("-0", r"\le"), r"(-\infty,0]"),
    **dict.fromkeys(("*", r"\ne"), r"(-\infty,0)\cup(0,\infty)"),
}
_DISTANCE = re.compile(r"\|\s*(?P<name>[A-Za-z])\s*(?:(?P<sign>[-+])\s*(?P<shift>[^|]+))?\|")
_BUILDER = re.compile(
    rf"\\\{{\s*(?P<name>[a-z])\s*(?:\\in\s*{_REALS}\s*)?(?:\\mid|\\vert|\||:)\s*(?P<condition>.+)\\\}}", re.DOTALL
)
_NAME = re.compile(r"[A-Za-z]|\\[a-z]+")
_MOST = 40


@dataclass(frozen=True)
class End:
    """Where a piece ends: at `value`, or right above (`side` 1) or below (-1) it; `None` is infinity on that side."""

    value: Any
    side: int = 0


@dataclass(frozen=True)
class Piece:
    """An interval; an infinite end is open."""

    low: End
    high: End


_LOWEST, _HIGHEST = End(None, -1), End(None, 1)


@dataclass(frozen=True)
class RealSet:
    """The pieces in order, and the variable that the text named."""

    pieces: tuple[Piece, ...]
    name: str = ""


def real_set(text: str) -> RealSet | None:
    """The set of real numbers that the spelled `text` is, or `None`."""
    if found := _BUILDER.fullmatch(text):
        inside = real_set(found["condition"])
        return inside if inside and inside.name == found["name"] else None
    if found := _REALS_OF_ONE_SIGN.fullmatch(text):
        return _of_one_sign(found["mark"])
    text = _WITHOUT.sub(lambda _: r"\mathbb{R}\setminus ", text)
    if r"\setminus" in text:
        return _without(text)
    form = structure_of(text)
    if form and form.kind == "list":
        return _of_alternatives(form.elements)
    if relation := relation_of(text):
        return None if len(split_top(text, "[,;]")[0]) > 1 else _of_inequality(relation)
    if form is None:
        return None
    if form.kind == "union":
        parts = [real_set(part) or _points(part) for part in form.elements]
        return _united([part for part in parts if part]) if all(parts) else None
    if form.kind in {"()", "[]", "(]", "[)"} and len(form.elements) == 2:
        low, high = _end(form.elements[0], -1, form.kind[0] == "("), _end(form.elements[1], 1, form.kind[1] == ")")
        return RealSet((Piece(low, high),)) if low and high and _distance(low, high) <= -9 else None
    return None


def _of_one_sign(mark: str) -> RealSet | None:
    r"""The reals that a mark behind `\mathbb{R}` leaves: `^+`, `_{\ge 0}`, `^*`; `^+_0` has zero in it."""
    mark = re.sub(r"(?<=[<>e])\s*0", "", mark.replace(r"\cdot", "*"))
    interval = _OF_ONE_SIGN.get("".join(sorted(set(re.findall(r"[+\-*0<>]|\\(?:ge|le|ne)", mark)))))
    return real_set(interval) if interval else None


def same_set(gold: RealSet, given: RealSet, rounded: bool) -> bool:
    """Whether two sets have the same pieces, and their variables are not named differently."""
    if gold.name and given.name and gold.name != given.name:
        return False
    return len(gold.pieces) == len(given.pieces) and all(
        _distance(a.low, b.low, rounded) == _distance(a.high, b.high, rounded) == 0
        for a, b in zip(gold.pieces, given.pieces, strict=True)
    )


def _distance(left: End, right: End, rounded: bool = False) -> int:
    """How far `left` is above `right`: at most 2 if they are ends at one value, else -9 or less, or 9 or more."""
    if left.value is None or right.value is None:
        return 9 * ((left.value is None) * left.side - (right.value is None) * right.side)
    if same_value(left.value, right.value, SLACK, rounded):
        return left.side - right.side
    with mp.workprec(4 * SLACK):
        return 9 if real(left.value) > real(right.value) else -9


_place = cmp_to_key(_distance)


def _end(text: str, direction: int, is_open: bool) -> End | None:
    if found := _INFINITE.fullmatch(text):
        return End(None, direction) if is_open and int(f"{found['sign']}1") == direction else None
    value = real_number(text)
    return None if value is None else End(value, -direction if is_open else 0)


def _points(text: str) -> RealSet | None:
    form = structure_of(text)
    values = [real_number(element) for element in form.elements] if form and form.kind == "{}" else [None]
    if any(value is None for value in values):
        return None
    return _united([RealSet((Piece(End(value), End(value)),)) for value in values])


def _without(text: str) -> RealSet | None:
    base_text, *rest = split_top(text, r"\\setminus(?![A-Za-z])")[0]
    base, points = real_set(base_text), _points(rest[0]) if len(rest) == 1 else None
    if base is None or points is None:
        return None
    values = [piece.low.value for piece in points.pieces]
    lows, highs = [_LOWEST, *(End(value, 1) for value in values)], [*(End(value, -1) for value in values), _HIGHEST]
    return _intersection([base, RealSet(tuple(map(Piece, lows, highs)))])


def _of_alternatives(elements: tuple[str, ...]) -> RealSet | None:
    if len(elements) > _MOST:
        return None
    parts = [_of_inequality(found) if (found := relation_of(element)) else None for element in elements]
    sets = [part for part in parts if part]
    if len(sets) < len(elements) or len({part.name for part in sets}) != 1:
        return None
    united = _united(sets)
    if len(united.pieces) == sum(len(part.pieces) for part in sets):
        return RealSet(united.pieces, sets[0].name)
    return _intersection(sets)


def _of_inequality(relation: Relation) -> RealSet | None:
    sides, signs = list(relation.sides), list(relation.signs)
    if signs == [r"\ne"] and _NAME.fullmatch(sides[0]):
        rest = _without(rf"\mathbb{{R}}\setminus\{{{sides[1]}\}}")
        return replace(rest, name=sides[0]) if rest else None
    if any(sign not in ORDERS for sign in signs) or len(sides) > 3:
        return None
    if len(sides) == 2 and (found := _DISTANCE.fullmatch(sides[0])):
        return _of_distance(found, signs[0], sides[1])
    if signs[0] in {">", r"\ge"}:
        sides, signs = sides[::-1], [ORDERS[sign] for sign in signs[::-1]]
    if len({sign in {"<", r"\le"} for sign in signs}) > 1:
        return None
    places = [index for index, side in enumerate(sides) if _NAME.fullmatch(side) and real_number(side) is None]
    if len(places) != 1 or (len(sides) == 3 and places != [1]) or sides[places[0]] == r"\infty":
        return None
    low = _end(sides[0], -1, signs[0] == "<") if places[0] == 1 else _LOWEST
    high = _end(sides[-1], 1, signs[-1] == "<") if places[0] < len(sides) - 1 else _HIGHEST
    return RealSet((Piece(low, high),), sides[places[0]]) if low and high else None


def _of_distance(found: "re.Match[str]", sign: str, bound: str) -> RealSet | None:
    middle = f"-({found['sign']}({found['shift']}))" if found["shift"] else "0"
    name = found["name"]
    if sign in {"<", r"\le"}:
        return _of_inequality(Relation((f"{middle}-({bound})", name, f"{middle}+{bound}"), (sign, sign)))
    ends = ((f"{middle}-({bound})", ORDERS[sign]), (f"{middle}+{bound}", sign))
    sides = [part for end, order in ends if (part := _of_inequality(Relation((name, end), (order,))))]
    return _united(sides) if len(sides) == 2 else None


def _intersection(sets: list[RealSet]) -> RealSet | None:
    pieces = list(sets[0].pieces)
    for other in sets[1:]:
        met = [
            Piece(max(left.low, right.low, key=_place), min(left.high, right.high, key=_place))
            for left in pieces
            for right in other.pieces
        ]
        pieces = [piece for piece in met if _distance(piece.low, piece.high) <= 0]
    name = next((part.name for part in sets if part.name), "")
    return RealSet(tuple(pieces), name) if pieces else None


def _united(sets: list[RealSet]) -> RealSet:
    merged: list[Piece] = []
    for piece in sorted((piece for part in sets for piece in part.pieces), key=lambda piece: _place(piece.low)):
        if merged and _distance(piece.low, merged[-1].high) <= 1:
            merged[-1] = Piece(merged[-1].low, max(merged[-1].high, piece.high, key=_place))
        else:
            merged.append(piece)
    return RealSet(tuple(merged), next((part.name for part in sets if part.name), ""))
