r"""Sets of real numbers: intervals, their unions, inequalities in one variable, `\mathbb{R}` without some points.

Invariant: a set is its sorted pieces, disjoint and as long as they can be, so that two texts mean the same set if and
only if their pieces are the same.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from .expressions import real_number, same_value
from .relations import ORDERS, Relation, relation_of
from .structure import split_top, structure_of
from .values import SLACK, real

_INFINITE = re.compile(r"(?P<sign>[+-]?)\s*\\infty")
_REALS = r"\\mathbb\s*\{?\s*R\s*\}?"
_WITHOUT = re.compile(rf"^{_REALS}\s*(?:\\backslash(?![a-z])|-|/)\s*(?=\\\{{)")
_REALS_OF_ONE_SIGN = re.compile(
    rf"{_REALS}\s*(?P<mark>(?:[_^]\s*(?:\{{\s*(?:[+\-*0]|\\cdot|(?:>|<|\\ge|\\le|\\ne)\s*0)\s*\}}|[+\-*0])\s*)*)"
)
_DISTANCE = re.compile(r"\|\s*(?P<name>[A-Za-z])\s*(?:(?P<sign>[-+])\s*(?P<shift>[^|]+))?\|")
_BUILDER = re.compile(
    rf"\\\{{\s*(?P<name>[a-z])\s*(?:\\in\s*{_REALS}\s*)?(?:\\mid|\\vert|\||:)\s*(?P<condition>.+)\\\}}", re.DOTALL
)
_NAME = re.compile(r"[A-Za-z]|\\[a-z]+")
_MOST = 40
"""More inequalities are not read."""


@dataclass(frozen=True)
class Piece:
    """An interval; an end that is `None` is infinite, and open."""

    low: Any
    low_open: bool
    high: Any
    high_open: bool


@dataclass(frozen=True)
class RealSet:
    """The pieces in order, and the variable that the text named."""

    pieces: tuple[Piece, ...]
    name: str = ""
    plain: bool = False
    """Two finite ends in equal brackets: it may be a point or a list as well."""


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
        return None if len(split_top(text, ",;")) > 1 else _of_inequality(relation)
    if form is None:
        return None
    if form.kind == "union":
        parts = [real_set(part) or _points(part) for part in form.elements]
        return _united([part for part in parts if part]) if all(parts) else None
    if form.kind in {"()", "[]", "(]", "[)"} and len(form.elements) == 2:
        return _interval(form.kind, form.elements)
    return None


def _of_one_sign(mark: str) -> RealSet | None:
    r"""The reals that a mark behind `\mathbb{R}` leaves: `^+`, `_{\ge 0}`, `^*`; `^+_0` has zero in it."""
    parts = frozenset(
        re.findall(r"[+\-*0<>]|\\(?:ge|le|ne)", re.sub(r"(?<=[<>e])\s*0", "", mark.replace(r"\cdot", "*")))
    )
    zero = Fraction(0)
    above, below = Piece(zero, True, None, True), Piece(None, True, zero, True)
    marks: dict[frozenset[str], tuple[Piece, ...]] = {
        frozenset(): (Piece(None, True, None, True),),
        **dict.fromkeys(map(frozenset, ("+", ">", "+*")), (above,)),
        **dict.fromkeys(map(frozenset, ("-", "<", "-*")), (below,)),
        **dict.fromkeys((frozenset("+0"), frozenset({r"\ge"})), (Piece(zero, False, None, True),)),
        **dict.fromkeys((frozenset("-0"), frozenset({r"\le"})), (Piece(None, True, zero, False),)),
        **dict.fromkeys((frozenset("*"), frozenset({r"\ne"})), (below, above)),
    }
    return RealSet(marks[parts]) if parts in marks else None


def same_set(gold: RealSet, given: RealSet, rounded: bool) -> bool:
    """Whether two sets have the same pieces, and their variables are not named differently."""
    if gold.name and given.name and gold.name != given.name:
        return False
    return len(gold.pieces) == len(given.pieces) and all(
        (a.low_open, a.high_open) == (b.low_open, b.high_open)
        and _same_end(a.low, b.low, rounded)
        and _same_end(a.high, b.high, rounded)
        for a, b in zip(gold.pieces, given.pieces, strict=True)
    )


def _same_end(left: Any, right: Any, rounded: bool = False) -> bool:
    if left is None or right is None:
        return left is right
    return same_value(left, right, SLACK, rounded)


def _rough(value: Any) -> Any:
    """An end in floating point, to put ends in order."""
    with mp.workprec(4 * SLACK):
        return real(value)


def _interval(kind: str, ends: tuple[str, ...]) -> RealSet | None:
    low, high = (_end(end, sign) for end, sign in zip(ends, "-+", strict=True))
    if (low is None and kind[0] == "[") or (high is None and kind[1] == "]"):
        return None
    if low is _NO_END or high is _NO_END or (low is not None and high is not None and _rough(low) >= _rough(high)):
        return None
    piece = Piece(low, kind[0] == "(" or low is None, high, kind[1] == ")" or high is None)
    return RealSet((piece,), plain=kind in {"()", "[]"} and low is not None and high is not None)


_NO_END = object()


def _end(text: str, sign: str) -> Any:
    if found := _INFINITE.fullmatch(text):
        return None if (found["sign"] or "+") == sign else _NO_END
    value = real_number(text)
    return _NO_END if value is None else value


def _points(text: str) -> RealSet | None:
    form = structure_of(text)
    values = [real_number(element) for element in form.elements] if form and form.kind == "{}" else [None]
    if any(value is None for value in values):
        return None
    return _united([RealSet((Piece(value, False, value, False),)) for value in values])


def _without(text: str) -> RealSet | None:
    """What a difference of a set and finitely many points leaves."""
    base_text, *rest = split_top(text, r"\setminus")
    base, points = real_set(base_text), _points(rest[0]) if len(rest) == 1 else None
    if base is None or points is None:
        return None
    lows = [None, *(piece.low for piece in points.pieces)]
    highs = [*(piece.low for piece in points.pieces), None]
    rest_set = RealSet(tuple(Piece(low, True, high, True) for low, high in zip(lows, highs, strict=True)))
    return _intersection([base, rest_set])


def _of_alternatives(elements: tuple[str, ...]) -> RealSet | None:
    """The union of inequalities in one variable; where they overlap, all of them are meant at once."""
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
        value = real_number(sides[1])
        if value is None:
            return None
        return RealSet((Piece(None, True, value, True), Piece(value, True, None, True)), sides[0])
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
    low, high = (places[0] == 1, places[0] < len(sides) - 1)
    ends = (_end(sides[0], "-") if low else None, _end(sides[-1], "+") if high else None)
    if _NO_END in ends:
        return None
    low_open = not low or signs[0] == "<" or ends[0] is None
    high_open = not high or signs[-1] == "<" or ends[1] is None
    return RealSet((Piece(ends[0], low_open, ends[1], high_open),), sides[places[0]])


def _of_distance(found: "re.Match[str]", sign: str, bound: str) -> RealSet | None:
    """`|x - a| < b`."""
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
        pieces = [met for left in pieces for right in other.pieces if (met := _met(left, right))]
    name = next((part.name for part in sets if part.name), "")
    return RealSet(tuple(pieces), name) if pieces else None


def _met(left: Piece, right: Piece) -> Piece | None:
    """What two intervals share."""
    low, low_open = _end_of((left.low, left.low_open), (right.low, right.low_open), larger=True)
    high, high_open = _end_of((left.high, left.high_open), (right.high, right.high_open), larger=False)
    if low is not None and high is not None:
        if _same_end(low, high):
            return None if low_open or high_open else Piece(low, False, high, False)
        if _rough(low) > _rough(high):
            return None
    return Piece(low, low_open, high, high_open)


def _end_of(left: tuple[Any, bool], right: tuple[Any, bool], larger: bool) -> tuple[Any, bool]:
    """The nearer of two ends."""
    if left[0] is None or right[0] is None:
        return right if left[0] is None else left
    if _same_end(left[0], right[0]):
        return left[0], left[1] or right[1]
    return left if (_rough(left[0]) > _rough(right[0])) == larger else right


def _united(sets: list[RealSet]) -> RealSet:
    pieces = sorted(
        (piece for part in sets for piece in part.pieces),
        key=lambda piece: (piece.low is not None, 0 if piece.low is None else _rough(piece.low), piece.low_open),
    )
    merged: list[Piece] = []
    for piece in pieces:
        if merged and _touch(merged[-1], piece):
            merged[-1] = _joined(merged[-1], piece)
        else:
            merged.append(piece)
    return RealSet(tuple(merged), next((part.name for part in sets if part.name), ""))


def _touch(left: Piece, right: Piece) -> bool:
    if left.high is None or right.low is None:
        return True
    if _same_end(left.high, right.low):
        return not (left.high_open and right.low_open)
    return bool(_rough(right.low) < _rough(left.high))


def _joined(left: Piece, right: Piece) -> Piece:
    same_low = _same_end(left.low, right.low)
    low_open = left.low_open and right.low_open if same_low else left.low_open
    if left.high is None or right.high is None:
        return Piece(left.low, low_open, None, True)
    if _same_end(left.high, right.high):
        return Piece(left.low, low_open, left.high, left.high_open and right.high_open)
    longer = left if _rough(left.high) > _rough(right.high) else right
    return Piece(left.low, low_open, longer.high, longer.high_open)
