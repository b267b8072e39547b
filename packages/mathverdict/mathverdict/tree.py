"""Expression trees: what `grammar` makes of a text and `values` computes.

Invariant: a tree holds every sign of the text it was read from; nothing is evaluated or dropped here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


class Unparsable(ValueError):
    """A text is not one expression of the notation that is read here."""


@dataclass(frozen=True)
class Node:
    """One operation, number or name.

    `kind` is "number" (`value`), "symbol" or "constant" (`name`), "add", "multiply", "divide", "negate", "power",
    "call" (`name` is a known function), "opaque" (a function that nothing is known about) or "sum" and "prod"
    (`name` is the index; the arguments are its bounds and the body).
    """

    kind: str
    args: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    rounded: bool = False


def number(value: Fraction | int, rounded: bool = False) -> Node:
    return Node("number", value=Fraction(value), rounded=rounded)


def walk(node: Node) -> Iterator[Node]:
    yield node
    for arg in node.args:
        yield from walk(arg)


def symbols(node: Node) -> frozenset[str]:
    """Names of the free variables."""
    inside = frozenset().union(*(symbols(arg) for arg in node.args))
    if node.kind == "symbol":
        return inside | {node.name}
    return inside - {node.name} if node.kind in {"sum", "prod"} else inside


def is_rounded(node: Node) -> bool:
    """Whether a decimal is part of the expression."""
    return any(part.rounded for part in walk(node))
