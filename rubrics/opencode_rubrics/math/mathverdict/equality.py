r"""Whether two answers are the same: by outer form first, then as choice, words, number, quantity or expression.

Invariant: the first form that fits the reference decides. What only math-verify can decide goes there last, so its
known false friends (anagrams, tuples against sets, a false chain such as 6 = 5) never reach it.
"""

import re
from collections.abc import Sequence

from .numbers import read_number, same_number
from .spelling import spell, unwrap
from .structure import Structure, balanced, row_elements, split_top, structure_of
from .units import split_unit
from .words import as_choice, as_words, same_choice

MAX_EXPRESSION_CHARS = 2000
"""A longer expression is compared as text only."""

_MAX_DEPTH = 4
_ASSIGNED = re.compile(r"^(?:[A-Za-z]|\\[a-z]+|\\text\{[^{}]*\})(?:_\{?\w+\}?)?(?:\([^()]*\))?$")
_MEMBER = re.compile(r"^[A-Za-z]\s*\\in(?![a-z])\s*")
_RELATION = re.compile(r"\\(?:le|ge|ne)(?![a-z])|[<>]")
_COMMAND = re.compile(r"\\(?:text\s*\{[^{}]*\}|[A-Za-z]+)")
_PLUS_MINUS = re.compile(r"\\pm(?![a-z])")


def equal(reference: str, answer: str, depth: int = 0) -> bool:
    """Whether `answer` states the same as `reference`; the two are not interchangeable: the reference sets the form."""
    if unwrap(reference).split() == unwrap(answer).split():
        return True
    if letter := as_choice(unwrap(reference)):
        if same_choice(letter, unwrap(answer)):
            return True
    elif (words := as_words(unwrap(reference))) is not None:
        return words == as_words(unwrap(answer))
    gold, given = spell(reference), spell(answer)
    if gold == given and gold:
        return True
    if max(len(gold), len(given)) > MAX_EXPRESSION_CHARS or depth > _MAX_DEPTH or not _whole(given):
        return False
    return _equal_spelled(_expanded(gold), _expanded(given), depth)


def _whole(text: str) -> bool:
    return bool(text) and balanced(text) and text[-1] not in "+-*/^_=<" and not text.endswith(r"\cdot")


def _expanded(text: str) -> str:
    r"""`\pm` written out as two answers, and `x \in S` as S."""
    text = _MEMBER.sub("", text)
    if len(_PLUS_MINUS.findall(text)) != 1:
        return text
    return f"{_PLUS_MINUS.sub('+', text).lstrip('+ ')}, {_PLUS_MINUS.sub('-', text)}"


def _equal_spelled(gold: str, given: str, depth: int) -> bool:
    form, other = structure_of(gold), structure_of(given)
    if form and other:
        decided = _same_structure(form, other, depth)
        if decided is not None:
            return decided
    elif form or other:
        if form and form.kind == "{}" and len(form.elements) == 1:
            return equal(form.elements[0], given, depth + 1)
        if other and other.kind == "{}" and len(other.elements) == 1:
            return equal(gold, other.elements[0], depth + 1)
        if (other and other.kind == "list") or (form and not _RELATION.search(given) and form.kind != "matrix"):
            return False
    return _same_single(gold, given, depth)


def _same_structure(form: Structure, other: Structure, depth: int) -> bool | None:
    """Whether two forms agree; `None` if they have to be evaluated to tell."""
    kinds = {form.kind, other.kind}
    if kinds == {"matrix"}:
        return _same_rows(form, other, depth)
    if "matrix" in kinds:
        return _same_vector(form, other, depth)
    if kinds == {"union"}:
        return _unordered(form.elements, other.elements, depth) or None
    if "union" in kinds:
        alternatives = all(
            _RELATION.search(element) for side in (form, other) if side.kind == "list" for element in side.elements
        )
        return _unordered(form.elements, other.elements, depth) if kinds == {"union", "list"} and alternatives else None
    if form.kind == other.kind or kinds == {"{}", "list"}:
        named = len(_names(form)) == len(form.elements) > 1 and not _names(other)
        if form.kind in {"{}", "list"} and not named:
            return _unordered(form.elements, other.elements, depth)
        return _ordered(form.elements, other.elements, depth)
    if kinds == {"()", "list"}:
        return _ordered(form.elements, other.elements, depth)
    return False


def _names(form: Structure) -> set[str]:
    """The variables that the elements assign, if they do."""
    sides = [split_top(element, "=") for element in form.elements]
    return {side[0] for side in sides if len(side) == 2 and _ASSIGNED.match(side[0])}


def _ordered(left: Sequence[str], right: Sequence[str], depth: int) -> bool:
    return len(left) == len(right) and all(equal(a, b, depth + 1) for a, b in zip(left, right, strict=True))


def _unordered(left: Sequence[str], right: Sequence[str], depth: int) -> bool:
    """Whether each element of one side has an equal on the other."""
    left, right = _distinct(left, depth), _distinct(right, depth)
    if len(left) != len(right):
        return False
    rest = list(right)
    for wanted in left:
        match = next((given for given in rest if equal(wanted, given, depth + 1)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


def _distinct(elements: Sequence[str], depth: int) -> list[str]:
    kept: list[str] = []
    for element in elements:
        if not any(equal(known, element, depth + 1) for known in kept):
            kept.append(element)
    return kept


def _same_rows(form: Structure, other: Structure, depth: int) -> bool:
    rows = [row_elements(row) for row in form.elements]
    other_rows = [row_elements(row) for row in other.elements]
    return len(rows) == len(other_rows) and all(
        _ordered(row, other_row, depth) for row, other_row in zip(rows, other_rows, strict=True)
    )


def _same_vector(form: Structure, other: Structure, depth: int) -> bool:
    """A matrix of one row or column equals the tuple or list of its cells."""
    matrix, vector = (form, other) if form.kind == "matrix" else (other, form)
    rows = [row_elements(row) for row in matrix.elements]
    if vector.kind not in {"()", "[]", "list"} or not (len(rows) == 1 or all(len(row) == 1 for row in rows)):
        return False
    cells = [cell for row in rows for cell in row]
    left, right = (cells, vector.elements) if matrix is form else (vector.elements, cells)
    return _ordered(left, right, depth)


def _same_single(gold: str, given: str, depth: int) -> bool:
    number, other = read_number(gold), read_number(given)
    if number and other:
        return same_number(number, other)
    if (sides := split_top(given, "=")) and len(sides) > 1 and "=" not in gold and not _RELATION.search(given):
        return _same_chain(gold, sides, depth)
    approximated = split_top(given, r"\approx")
    if len(approximated) == 2 and r"\approx" not in gold:
        return _same_approximation(gold, approximated, depth)
    figure, unit = split_unit(gold)
    given_figure, given_unit = split_unit(given)
    if unit or given_unit:
        if unit and given_unit and unit != given_unit:
            return False
        return equal(figure, given_figure, depth + 1)
    if _other_case(gold, given) or r"\ldots" in given or r"\dots" in given or "..." in given:
        return False
    # Imported where it is needed: most answers are decided without the two tenths of a second that sympy takes.
    from .symbolic import Unparsable, equal_expressions

    try:
        return equal_expressions(gold, given)
    except Unparsable:
        return False


def _other_case(gold: str, given: str) -> bool:
    """Whether a variable of one is the other's in the other case: to math-verify x and X are the same."""
    left, right = (set(re.findall("[A-Za-z]", _COMMAND.sub("", text))) - {"e", "E"} for text in (gold, given))
    return any(letter.swapcase() in right - left for letter in left - right)


def _same_chain(gold: str, sides: Sequence[str], depth: int) -> bool:
    """`a = b = c` against a value: its last side, provided that no figure before it says otherwise."""
    if not equal(gold, sides[-1], depth + 1):
        return False
    return all(re.search("[A-Za-z]", side) or equal(gold, side, depth + 1) for side in sides[:-1])


def _same_approximation(gold: str, sides: Sequence[str], depth: int) -> bool:
    r"""`\pi \approx 3.14` against a value: either side, provided that they are within 1 % of each other."""
    if not any(equal(gold, side, depth + 1) for side in sides):
        return False
    return _within(sides[0], sides[1], 0.01)


def _within(left: str, right: str, share: float) -> bool:
    """Whether two expressions are real numbers at most `share` of the larger apart."""
    from .symbolic import real_value

    values = real_value(left), real_value(right)
    if values[0] is None or values[1] is None:
        return False
    return abs(values[0] - values[1]) <= share * max(abs(values[0]), abs(values[1]))
