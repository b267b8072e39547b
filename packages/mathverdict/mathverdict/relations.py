r"""Equations, inequalities and chains of them, as text: their sides and signs.

Invariant: only signs at the top level split a text; a sign that is not known here is left where it is, so that the
text is not an expression either.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from .expressions import equal_trees, proportional, read
from .tree import Node, Unparsable, symbols, walk
from .words import as_words, takes_back

_SIGN = re.compile(
    r"\\(?P<command>le|ge|ne|approx|equiv|sim|cong|perp|parallel|in|notin|subset|subseteq)(?![A-Za-z])|(?P<char>[=<>])"
)
ORDERS = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
"""Each sign of an inequality and what it is from the other end."""
_TURNED = {**ORDERS, **{sign: sign for sign in ("=", r"\ne", r"\sim", r"\cong", r"\perp", r"\parallel")}}
_NOT_ASKED_FOR = re.compile(r"(?<![\^_\d{])\d|(?<![\\A-Za-z])[A-Za-z]{3,}")
"""Coefficients, and words."""
_NAMED = re.compile(
    r"[fghFGT]\s*\^\s*\{?\s*(?:-1|\(\d\))\s*\}?\s*\([a-z\d]+\)|\(?[fgh]\s*\\circ\s*[fgh]\)?\s*\([a-z\d]+\)|[A-Z]\s*\^\s*\{?-1\}?"
    r"|(?:\\mathbb\s*\{\s*[EP]\s*\}|[EP]|\\text\{\s*(?:Var|Cov|SD|E|P|Area|area|Volume)\s*\})\s*[(\[][^=<>]{1,30}[)\]]"
    r"|\[[A-Z]{3,6}\]|m\s*\\angle\s*[A-Z]{1,3}|\\nabla\s*[a-zA-Z](?:\s*\([^=]{1,20}\))?|\\bar\s*\{?[a-z]\}?|\\text\{\s*[A-Za-z]+\s*\}"
)
"""Names that are not single symbols: `f^{-1}(x)`, `\\text{Var}(X)`, `[ABC]`, `m\\angle A`."""
_UNKNOWNS = frozenset("abcdhkmnpqrstuvxy")
_OPERATION = re.compile(
    r"\b(?:twice|half|double|triple|minus|plus|negative|opposite|inverse|reciprocal|times|root|log|squared?|cubed?|less|"
    r"more|than|or|and|between|least|most|greater|over)\b"
)
Equal = Callable[[str, str], bool]


@dataclass(frozen=True)
class Relation:
    """`sides[0] signs[0] sides[1] signs[1] …`"""

    sides: tuple[str, ...]
    signs: tuple[str, ...]

    @property
    def is_equation(self) -> bool:
        return set(self.signs) == {"="}


def relation_of(text: str) -> Relation | None:
    """The relation that the spelled `text` is; `None` if it has no sign at its top level, or an empty side."""
    if r"\begin" in text or not _SIGN.search(text):
        return None
    sides, signs, start, depth = [], [], 0, 0
    position = 0
    while position < len(text):
        char = text[position]
        found = _SIGN.match(text, position) if depth == 0 else None
        if found:
            sides.append(text[start : found.start()].strip())
            signs.append(found[0])
            start = position = found.end()
            continue
        if char == "\\":
            # An escaped brace is a bracket like any other.
            position += 1
            char = text[position : position + 1]
            char = char if char in {"{", "}"} else ""
        depth += (char in {"(", "[", "{"}) - (char in {")", "]", "}"}) if char else 0
        position += 1
    sides.append(text[start:].strip())
    if not signs or not all(sides):
        return None
    return Relation(tuple(sides), tuple(signs))


def tree_of(text: str) -> Node | None:
    """The tree of a side, if it is an expression."""
    try:
        return read(text)
    except Unparsable:
        return None


def is_name(text: str) -> bool:
    """Whether a side only names what the other one says: `x`, `f(2)`, `\\angle ABC`, `AB`, "area"."""
    if _NAMED.fullmatch(text):
        return True
    node = tree_of(text)
    if node is not None and (node.kind in {"symbol", "opaque"} or _is_point(node)):
        return True
    words = as_words(text)
    return words is not None and not takes_back(words) and not _OPERATION.search(words)


def _is_point(node: Node) -> bool:
    """`AB` and `|AB|`: products of capital letters; `|x|` is not a name of x."""
    if node.kind == "call" and node.name == "abs":
        return _is_point(node.args[0]) or (node.args[0].kind == "symbol" and node.args[0].name not in _UNKNOWNS)
    if node.kind == "multiply":
        return all(_is_point(arg) or (arg.kind == "symbol" and arg.name.isupper()) for arg in node.args)
    return False


def is_measure(text: str) -> bool:
    """Whether a side is what was asked for: a combination of several unknowns without coefficients, such as `a+b`."""
    node = tree_of(text)
    if node is None or text.startswith("-") or _NOT_ASKED_FOR.search(text) or as_words(text) is not None:
        return False
    if any(part.kind == "call" and part.name != "abs" for part in walk(node)):
        return False
    return len(symbols(node)) > 1


def says(relation: Relation, gold: str, equal: Equal) -> bool:
    """Whether an equation states the value `gold`: `x = 5`, `2+3 = 5`, `f(2) = 2^2+1 = 5`; not `-x = 5` or `6 = 5`."""
    sides = list(relation.sides)
    gold_tree = tree_of(gold)
    known = symbols(gold_tree) if gold_tree else frozenset()
    if len(sides) == 2 and not known and is_name(sides[1]) and equal(gold, sides[0]):
        return True
    if not equal(gold, sides[-1]):
        return False
    if (is_name(sides[0]) and sides[0] not in known) or is_measure(sides[0]):
        sides = sides[1:]
    return all(equal(gold, side) for side in sides[:-1])


def same_relation(gold: Relation, given: Relation, equal: Equal) -> bool:
    """Whether two relations state the same."""
    if gold.is_equation and given.is_equation:
        return _same_equation(gold, given, equal)
    if gold.signs == given.signs and all(map(equal, gold.sides, given.sides)):
        return True
    turned = _turned(given)
    if turned and turned.signs == gold.signs and all(map(equal, gold.sides, turned.sides)):
        return True
    return _same_inequality(gold, given)


def _turned(relation: Relation) -> Relation | None:
    """The relation read from its other end."""
    signs = [_TURNED.get(sign, "") for sign in relation.signs]
    return Relation(relation.sides[::-1], tuple(signs[::-1])) if all(signs) else None


def _same_equation(gold: Relation, given: Relation, equal: Equal) -> bool:
    lefts = gold.sides[0], given.sides[0]
    if lefts[0] == lefts[1] and is_name(lefts[0]):
        return all(equal(gold.sides[-1], side) for side in given.sides[1:])
    given_sides = _renamed(gold, given)
    if given_sides is not None:
        wanted = tree_of(gold.sides[-1])
        return wanted is not None and all(equal_trees(wanted, side) for side in given_sides[1:])
    if len(given.sides) > 2:
        return False
    return _multiple(gold, given) != 0


def _renamed(gold: Relation, given: Relation) -> list[Node] | None:
    """The sides of `f(t) = …` with the variable of the reference's `f(x) = …`; `None` if they are not such a pair."""
    left, right = tree_of(gold.sides[0]), tree_of(given.sides[0])
    if left is None or right is None or not left.kind == right.kind == "opaque" or left.name != right.name:
        return None
    names = [[arg.name for arg in node.args if arg.kind == "symbol"] for node in (left, right)]
    if any(len(set(found)) != len(node.args) for found, node in zip(names, (left, right), strict=True)):
        return None
    sides = [tree_of(side) for side in given.sides]
    renaming = dict(zip(names[1], names[0], strict=False))
    if len(names[0]) != len(names[1]) or any(side is None for side in sides):
        return None
    unbound = set(renaming.values()) - set(renaming)
    if any(unbound & symbols(side) for side in sides if side):
        return None
    return [_replaced(side, renaming) for side in sides if side]


def _replaced(node: Node, renaming: dict[str, str]) -> Node:
    name = renaming.get(node.name, node.name) if node.kind == "symbol" else node.name
    return Node(node.kind, tuple(_replaced(arg, renaming) for arg in node.args), name, node.value, node.rounded)


def _multiple(gold: Relation, given: Relation) -> int:
    """As `expressions.proportional`, of the differences of the sides."""
    trees = [tree_of(side) for relation in (gold, given) for side in (relation.sides[0], relation.sides[-1])]
    if len(gold.sides) != 2 or len(given.sides) != 2 or any(tree is None for tree in trees):
        return 0
    whole = [tree for tree in trees if tree is not None]
    left, right = (Node("add", (top, Node("negate", (bottom,)))) for top, bottom in (whole[:2], whole[2:]))
    return proportional(left, right) if symbols(left) == symbols(right) and symbols(left) else 0


def _same_inequality(gold: Relation, given: Relation) -> bool:
    if len(gold.signs) != 1 or len(given.signs) != 1:
        return False
    factor = _multiple(gold, given)
    if gold.signs[0] == given.signs[0] == r"\ne":
        return factor != 0
    if factor == 1:
        return gold.signs[0] == given.signs[0] and gold.signs[0] in ORDERS
    return factor == -1 and ORDERS.get(gold.signs[0]) == given.signs[0]
