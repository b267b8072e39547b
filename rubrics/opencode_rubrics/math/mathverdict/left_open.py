r"""What an answer leaves to be worked out: `\sum_{k=1}^{100}k` for 5050, `\gcd(84,36)` for 12, `2x=10` for `x=5`.

Invariant: an answer may leave open only what the reference leaves open, too. Whoever checks it can work out nearly
everything, so that else the problem itself would be a right answer to it. Roots, powers, factorials, logarithms and
angles' functions are names of numbers and leave nothing open.
"""

import re

from .relations import Relation, is_name, tree_of
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
_DERIVATIVE = re.compile(r"\\frac\s*\{\s*d\s*\}")
_MATRIX = re.compile(r"\\begin\{[pbvBV]?matrix\}")
_RESIDUE = re.compile(r"(?<![\d.^{])\d+\s*\\bmod")
"""A number that is one already; anything longer before `\\bmod` is a division to be done."""


def leaves_more_open(gold: str, given: str) -> bool:
    """Whether the spelled answer `given` leaves something to be worked out that the spelled reference does not."""
    return not _left_open(given) <= _left_open(gold)


def _left_open(text: str) -> set[str]:
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
