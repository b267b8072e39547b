r"""What an answer leaves to be worked out: `\sum_{k=1}^{100}k` for 5050, `\gcd(84,36)` for 12, `2x=10` for `x=5`.

Invariant: an answer may leave open only what the reference leaves open, too. Whoever checks it can work out nearly
everything, so that else the problem itself would be a right answer to it. Roots, powers, factorials, logarithms and
angles' functions are names of numbers and leave nothing open, and neither does what anybody sees at a glance, of
numbers of one digit: `\gcd(3,5)`, `\lceil 0.5\rceil`.
"""

import re

from .relations import Relation, is_name, relation_of, tree_of
from .tree import symbols

_KINDS = {
    "series": "sum prod",
    "calculus": "int iint lim",
    "divisor": "gcd lcm",
    "extreme": "max min",
    "rounding": "lfloor lceil",
    "determinant": "det",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split(" ")}
_OPERATION = re.compile(rf"\\(?P<name>{'|'.join(_KIND_OF)})(?![A-Za-z])")
_AT_A_GLANCE = re.compile(
    r"\\gcd\s*\(\s*-?\d(?:\s*,\s*-?\d)+\s*\)"
    r"|\\l(?P<kind>floor|ceil)\s*-?(?:\d(?:\.\d+)?|\.\d+|\\frac\s*\{\d\}\s*\{\d\}|\d/\d)\s*\\r(?P=kind)(?![A-Za-z])"
)
_DERIVATIVE = re.compile(r"\\frac\s*\{\s*d\s*\}")
_MATRIX = re.compile(r"\\begin\{[pbvBV]?matrix\}")
_RESIDUE = re.compile(r"(?<![\d.^{])\d+\s*\\bmod")
"""A number that is one already; anything longer before `\\bmod` is a division to be done."""
_ASKS = re.compile(rf"\\(?:{'|'.join(_KIND_OF)})(?![A-Za-z])|\\frac\s*\{{\s*d\s*\}}")
_LEAST = re.compile(r"_\s*\{?\s*\\(?:min|max)(?![A-Za-z])")
"""A name such as `x_{\\min}`."""
_SUBSCRIPTS = re.compile(r"_\s*\{[^{}]*\}")


def leaves_more_open(gold: str, given: str) -> bool:
    """Whether the spelled answer `given` leaves something to be worked out that the spelled reference does not."""
    return not _left_open(given) <= _left_open(gold)


def _left_open(text: str) -> set[str]:
    text = _AT_A_GLANCE.sub("0", _LEAST.sub("", text))
    found = {_KIND_OF[operation["name"]] for operation in _OPERATION.finditer(text)}
    if _DERIVATIVE.search(text):
        found.add("derivative")
    if r"\bmod" in _RESIDUE.sub("", text):
        found.add("remainder")
    if len(_MATRIX.findall(text)) > 1:
        found.add("product of matrices")
    return found


def is_solved(relation: Relation) -> bool:
    """Whether a relation says of a name what number it is, such as `x=5` or `2<x`."""
    if len(relation.sides) != 2:
        return False
    values = [tree_of(side) for side in reversed(relation.sides)]
    return any(
        is_name(name) and value is not None and not symbols(value)
        for name, value in zip(relation.sides, values, strict=True)
    )


def without_question(gold: str, given: str) -> tuple[str, str]:
    r"""Both texts, one of which loses the question it repeats: `\det A=-6` is -6 if the other is not an equation."""
    if "=" not in _SUBSCRIPTS.sub("", gold):
        return gold, _answered(given)
    return (gold, given) if "=" in _SUBSCRIPTS.sub("", given) else (_answered(gold), given)


def _answered(text: str) -> str:
    relation = relation_of(text) if _ASKS.match(text) else None
    if relation is None or not relation.is_equation:
        return text
    return "=".join(relation.sides[1:])
