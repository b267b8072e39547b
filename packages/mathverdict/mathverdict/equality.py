r"""Whether two answers are the same: as choice, words, structure, notation, relation, set, quantity or expression.

Invariant: the first form that fits the reference decides, and a part of an answer that no form reads makes the answer
different. Nothing is dropped to make two texts equal.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from .grammar import Unparsable
from .normalize import normalize, unescaped, without_lead
from .notations import (
    Choice,
    answered_choice,
    reference_choice,
    renamed,
    same_choices,
    same_date,
    same_notation,
    same_progression,
    without_domains,
)
from .quantities import quantity_of, same_parts, same_quantity
from .structure import (
    Relation,
    Structure,
    are_strings,
    balanced,
    expanded,
    in_components,
    is_name,
    is_solved,
    leaves_work,
    real_set,
    relation_of,
    row_elements,
    same_relation,
    same_set,
    says,
    structure_of,
    without_question,
)
from .values import constant_apart, equal_trees, read, read_number, rounds_to, same_number
from .words import meaning, same_words

MAX_EXPRESSION_CHARS = 2000
_MAX_DEPTH = 5
_ORDER = re.compile(r"\\(?:le|ge|ne)(?![a-z])|[<>]")
_CALCULUS = re.compile(r"\\(?:int|iint|lim|sum|prod)(?![A-Za-z])|\\begin\{[pbvBV]?matrix\}|\\frac\s*\{\s*d\s*\}")
_CONSTANT = re.compile(r"\+\s*[cCkK]$")


class Comparison(NamedTuple):
    """Whether two texts are the same, and the form in which they were compared, such as "words" or "number"."""

    equal: bool
    form: str


def equal(reference: str, answer: str, depth: int = 0) -> bool:
    """Whether `answer` states the same as `reference`; the two are not interchangeable: the reference sets the form."""
    return compare(reference, answer, depth).equal


def compare(reference: str, answer: str, depth: int = 0) -> Comparison:
    """The same with the form that decided; `depth` counts the structures around the two."""
    if depth == 0:
        reference, answer = unescaped(reference), unescaped(answer)
    if reference.split() == answer.split() or len(answer) > 2 * MAX_EXPRESSION_CHARS:
        return Comparison(reference.split() == answer.split(), "text")
    reference, answer = meaning(without_lead(reference)), meaning(without_lead(answer))
    if reference.split() == answer.split():
        return Comparison(True, "text")
    for form, same in (
        ("date", same_date),
        ("choice", same_choices),
        ("progression", same_progression),
    ):
        if (decided := same(reference, answer)) is not None:
            return Comparison(decided, form)
    choice = reference_choice(reference)
    if choice:
        if (decided := _same_choice(choice, answer, depth)) is not None:
            return Comparison(decided, "choice")
    elif (named := answered_choice(answer)) and named.text and equal(reference, named.text, depth + 1):
        return Comparison(True, "choice")
    elif (decided := same_words(reference, answer)) is not None:
        return Comparison(decided, "words")
    return _compare_formulas(*without_domains(reference, answer), depth)


def _compare_formulas(reference: str, answer: str, free: frozenset[str], depth: int) -> Comparison:
    gold, given = normalize(reference), normalize(answer)
    if gold == given and gold:
        return Comparison(True, "text")
    if max(len(gold), len(given)) > MAX_EXPRESSION_CHARS or depth > _MAX_DEPTH or not _whole(given):
        return Comparison(False, "text")
    gold, given = without_question(gold, given)
    if leaves_work(gold, given):
        return Comparison(False, "unevaluated")
    if (amounts := same_parts(gold, given)) is not None:
        return Comparison(amounts, "quantity")
    found = Comparison(False, "text")
    for text in renamed(gold, given, free):
        left, right = in_components(expanded(gold), expanded(text))
        found = Comparison(True, "text") if left == right else _compare_normalized(left, right, depth)
        if found.equal:
            break
    return found


def _same_choice(choice: Choice, answer: str, depth: int) -> bool | None:
    given = answered_choice(answer)
    if given and (given.text or given.letter == choice.letter or choice.text):
        texts = choice.text and given.text
        return given.letter == choice.letter and (not texts or equal(choice.text, given.text, depth + 1))
    return equal(choice.text, answer, depth + 1) if choice.text else None


def _whole(text: str) -> bool:
    return bool(text) and balanced(text) and text[-1] not in "+-*/^_=<" and not text.endswith(r"\cdot")


def _compare_normalized(gold: str, given: str, depth: int) -> Comparison:
    form, other = structure_of(gold), structure_of(given)
    lists = {"list"} & {found.kind for found in (form, other) if found}
    if not lists and (decided := _compare_relations(gold, given, depth)) is not None:
        return decided
    kind = next((found.kind for found in (form, other) if found), "")
    if form and other:
        if _same_structure(form, other, depth):
            return Comparison(True, kind)
    elif (alone := _only_element(form or other)) and equal(*((alone, given) if form else (gold, alone)), depth + 1):
        return Comparison(True, kind)
    if kind or _ORDER.search(gold) or _ORDER.search(given) or r"\mathbb" in gold + given:
        decided_set = _same_real_set(gold, given)
        if decided_set is not None:
            return Comparison(decided_set, "set of reals")
    return Comparison(False, kind) if kind else _compare_single(gold, given, depth)


def _only_element(form: Structure | None) -> str:
    single = form is not None and form.kind == "{}" and len(form.elements) == 1
    return form.elements[0] if form and single and form.elements[0] != r"\emptyset" else ""


def _compare_relations(gold: str, given: str, depth: int) -> Comparison | None:
    """The comparison of two texts of which one has a notation of its own or a relation sign; else `None`."""
    inner = partial(equal, depth=depth + 1)
    if (decided := same_notation(gold, given, inner)) is not None:
        return Comparison(decided, "notation")
    relation, other = relation_of(gold), relation_of(given)
    if other and r"\approx" in other.signs and not (relation and r"\approx" in relation.signs):
        same = _same_approximation(gold, other, inner)
    elif relation and other:
        solved = not is_solved(relation) or is_solved(other)
        same = solved and (same_relation(relation, other, inner) or _same_real_set(gold, given) or False)
    elif other:
        if not other.is_equation and _ORDER.search(given):
            return None
        same = other.is_equation and says(other, gold, inner)
    elif relation:
        if not relation.is_equation and _ORDER.search(gold):
            return None
        same = relation.is_equation and is_name(relation.sides[0]) and inner(relation.sides[-1], given)
    else:
        return None
    return Comparison(same, "relation")


def _same_approximation(gold: str, relation: Relation, inner: "partial[bool]") -> bool:
    r"""`\pi \approx 3.14` against a value: a value, and behind it what it is when it is rounded to fewer digits."""
    sides = relation.sides
    exact = Relation(sides[:-1], relation.signs[:-1]) if len(sides) > 2 else None
    if not exact and is_name(sides[0]) and sides[0] not in gold:
        return inner(gold, sides[1])
    stated = says(exact, gold, inner) if exact else inner(gold, sides[0])
    return (stated or inner(gold, sides[-1])) and rounds_to(sides[-2], sides[-1])


def _same_real_set(gold: str, given: str) -> bool | None:
    left = real_set(gold)
    right = real_set(given) if left else None
    return same_set(left, right, rounded="." in gold + given) if left and right else None


def _same_structure(form: Structure, other: Structure, depth: int) -> bool:
    kinds = {form.kind, other.kind}
    if kinds == {"matrix"}:
        rows, others = ([row_elements(row) for row in side.elements] for side in (form, other))
        return len(rows) == len(others) and all(_ordered(*pair, depth) for pair in zip(rows, others, strict=True))
    if "matrix" in kinds:
        return _same_vector(form, other, depth)
    if form.kind == other.kind or kinds == {"{}", "list"}:
        if are_strings(form.elements) or are_strings(other.elements):
            return form.elements == other.elements if "()" in kinds else sorted(form.elements) == sorted(other.elements)
        names, given = _names(form), _names(other)
        # The roots that an answer numbers are a list as those that it does not.
        several = len({name.partition("_")[0] for name in given}) > 1
        named = (len(names) == len(form.elements) > 1 and not given) or (several and not names)
        if form.kind in {"{}", "list"} and not named:
            return _same_elements(form, other, depth)
        return _ordered(_in_turn(form), _in_turn(other), depth)
    return kinds == {"()", "list"} and _ordered(_in_turn(form), _in_turn(other), depth)


def _in_turn(form: Structure) -> tuple[str, ...]:
    """The elements; those that assign letters which follow each other, in the order of these."""
    letters = "".join(sorted(_names(form)))
    following = 1 < len(form.elements) == len(letters) and letters in "abcdefghijklmnopqrstuvwxyz"
    return tuple(sorted(form.elements)) if following else form.elements


def _names(form: Structure) -> set[str]:
    relations = [relation_of(element) for element in form.elements]
    return {found.sides[0] for found in relations if found and found.is_equation and is_name(found.sides[0])}


def _ordered(left: Sequence[str], right: Sequence[str], depth: int) -> bool:
    return len(left) == len(right) and all(equal(a, b, depth + 1) for a, b in zip(left, right, strict=True))


def _same_elements(form: Structure, other: Structure, depth: int) -> bool:
    if _unordered(form.elements, other.elements, depth):
        return True
    if form.kind == other.kind == "list" or len(other.elements) > 2 * len(form.elements) + 2:
        return False
    wanted, found = (_distinct(side.elements, depth) if side.kind == "{}" else side.elements for side in (form, other))
    return _unordered(wanted, found, depth)


def _unordered(left: Sequence[str], right: Sequence[str], depth: int) -> bool:
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


def _same_vector(form: Structure, other: Structure, depth: int) -> bool:
    matrix, vector = (form, other) if form.kind == "matrix" else (other, form)
    rows = [row_elements(row) for row in matrix.elements]
    if vector.kind not in {"()", "[]", "list"} or not (len(rows) == 1 or all(len(row) == 1 for row in rows)):
        return False
    cells = [cell for row in rows for cell in row]
    left, right = (cells, _in_turn(vector)) if matrix is form else (_in_turn(vector), cells)
    return _ordered(left, right, depth)


def _compare_single(gold: str, given: str, depth: int) -> Comparison:
    number, other = read_number(gold), read_number(given)
    if number and other:
        return Comparison(same_number(number, other), "number")
    quantity, given_quantity = quantity_of(gold), quantity_of(given)
    if quantity.unit or given_quantity.unit:
        shares = [number or read_number(quantity.figure), other or read_number(given_quantity.figure)]
        # A percentage counts nothing.
        alike = len({share is not None and share.percent for share in shares}) == 1
        same = alike and same_quantity(quantity, given_quantity, partial(equal, depth=depth + 1))
        # Letters that nothing marks as a unit may be the reference's variables.
        if same or quantity.unit or "\\text" in given or given_quantity.unit == "degree":
            return Comparison(same, "quantity")
    compared = constant_apart if gold.endswith("+C") and _CONSTANT.search(given) else equal_trees
    if _CONSTANT.search(gold) and _CONSTANT.search(given):
        gold, given = (_CONSTANT.sub("+C", text) for text in (gold, given))
    try:
        return Comparison(compared(read(gold), read(given)), "expression")
    except Unparsable:
        if not (_CALCULUS.search(gold) or _CALCULUS.search(given)):
            return Comparison(False, "calculus")
    # Imported where it is needed: nearly all answers are decided without the tenths of a second that sympy takes.
    from .calculus import equal_expressions

    return Comparison(equal_expressions(gold, given), "calculus")
