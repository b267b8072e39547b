r"""Equations, inequalities and chains of them, as text: their sides and signs; and what a text leaves to be worked out,
such as `\sum_{k=1}^{100}k` for 5050, `\gcd(84,36)` for 12, `2x=10` for `x=5`.

Invariant: only signs at the top level split a text. An answer may leave open only what the reference leaves open, too:
whoever checks it can work out nearly everything, so that else the problem itself would be a right answer to it. Roots,
powers, factorials, logarithms and angles' functions are names of numbers, and so is what anybody sees at a glance.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from .grammar import Node, Unparsable, symbols
from .values import proportional, read
from .words import as_words, takes_back

_SIGN = r"\\(?:le|ge|ne|approx|equiv|sim|cong|perp|parallel|in|notin|subset|subseteq)(?![A-Za-z])|[=<>]"
_BETWEEN_SIDES = re.compile(_SIGN)
ORDERS = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
"""Each sign of an inequality and what it is from the other end."""
_TURNED = {**ORDERS, **{sign: sign for sign in ("=", r"\ne", r"\sim", r"\cong", r"\perp", r"\parallel")}}
_NOT_ASKED_FOR = re.compile(r"(?<![\^_\d{])\d|(?<![\\A-Za-z])[A-Za-z]{3,}")
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
_KINDS = {
    "series": "sum prod",
    "calculus": "int iint lim",
    "divisor": "gcd lcm",
    "extreme": "max min",
    "rounding": "lfloor lceil",
    "determinant": "det",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split(" ")}
_LEFT_TO_DO = re.compile(rf"\\(?P<name>{'|'.join(_KIND_OF)})(?![A-Za-z])|\\frac\s*\{{\s*d\s*\}}\s*\{{\s*d\s*[a-z]")
_AT_A_GLANCE = re.compile(
    r"\\gcd\s*\(\s*-?\d(?:\s*,\s*-?\d)+\s*\)"
    r"|\\l(?P<kind>floor|ceil)\s*-?(?:\d(?:\.\d+)?|\.\d+|\\frac\s*\{\d\}\s*\{\d\}|\d/\d)\s*\\r(?P=kind)(?![A-Za-z])"
)
_MATRIX = re.compile(r"\\begin\{[pbvBV]?matrix\}")
_RESIDUE = re.compile(r"(?<![\d.^{])\d+\s*\\bmod")
"""A number that is one already; anything longer before `\\bmod` is a division to be done."""
_LEAST = re.compile(r"_\s*\{?\s*\\(?:min|max)(?![A-Za-z])")
_BETWEEN_BOUNDS = re.compile(r"\[[^=]*\]\s*_\s*(?:\w|\{[^{}]*\})\s*\^\s*(?:\w|\{[^{}]*\})")


class Relation(NamedTuple):
    """`sides[0] signs[0] sides[1] signs[1] …`"""

    sides: tuple[str, ...]
    signs: tuple[str, ...]

    @property
    def is_equation(self) -> bool:
        return set(self.signs) == {"="}


@lru_cache
def _at_top(separator: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<open>\\?\{{|[(\[])|(?P<close>\\?\}}|[)\]])|(?P<separator>{separator})|\\.", re.DOTALL)


def split_top(text: str, separator: str) -> tuple[list[str], list[str]]:
    """The parts of `text` between what fits the pattern `separator` outside of all brackets, and these separators."""
    parts, separators, start, depth = [], [], 0, 0
    for found in _at_top(separator).finditer(text):
        depth += (found["open"] is not None) - (found["close"] is not None)
        if found["separator"] and depth == 0:
            parts.append(text[start : found.start()].strip())
            separators.append(found[0])
            start = found.end()
    return [*parts, text[start:].strip()], separators


def relation_of(text: str) -> Relation | None:
    """The relation that the spelled `text` is; `None` if it has no sign at its top level, or an empty side."""
    if r"\begin" in text or not _BETWEEN_SIDES.search(text):
        return None
    sides, signs = split_top(text, _SIGN)
    return Relation(tuple(sides), tuple(signs)) if signs and all(sides) else None


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
        if gold.sides[0] == given.sides[0] and is_name(gold.sides[0]):
            return all(equal(gold.sides[-1], side) for side in given.sides[1:])
        return _multiple(gold, given) != 0
    if gold.signs == given.signs and all(map(equal, gold.sides, given.sides)):
        return True
    turned = tuple(_TURNED.get(sign) for sign in reversed(given.signs))
    if gold.signs == turned and all(map(equal, gold.sides, reversed(given.sides))):
        return True
    factor, sign = _multiple(gold, given), gold.signs[0]
    return factor != 0 and sign in ORDERS and given.signs[0] == (sign if factor > 0 else ORDERS[sign])


def _multiple(gold: Relation, given: Relation) -> int:
    trees = [tree for side in (*gold.sides, *given.sides) if (tree := tree_of(side))]
    if not len(gold.sides) == len(given.sides) == 2 or len(trees) < 4:
        return 0
    left, right = (Node("add", (top, Node("negate", (bottom,)))) for top, bottom in (trees[:2], trees[2:]))
    return proportional(left, right) if symbols(left) == symbols(right) and symbols(left) else 0


def leaves_work(gold: str, given: str) -> bool:
    """Whether the spelled answer `given` leaves something to be worked out that the spelled reference does not."""
    return not _left_open(given) <= _left_open(gold)


def _left_open(text: str) -> set[str]:
    text = _AT_A_GLANCE.sub("0", _LEAST.sub("", text))
    found = {_KIND_OF.get(operation["name"], "derivative") for operation in _LEFT_TO_DO.finditer(text)}
    if r"\bmod" in _RESIDUE.sub("", text):
        found.add("remainder")
    if len(_MATRIX.findall(text)) > 1:
        found.add("product of matrices")
    return found


def is_solved(relation: Relation) -> bool:
    """Whether a relation says of a name what number it is, such as `x=5` or `2<x`."""
    pairs = zip(relation.sides, map(tree_of, reversed(relation.sides)), strict=True) if len(relation.sides) == 2 else ()
    return any(is_name(name) and value is not None and not symbols(value) for name, value in pairs)


def without_question(gold: str, given: str) -> tuple[str, str]:
    r"""Both texts, one of which loses the question it repeats: `\det A=-6` is -6 if the other is not an equation."""
    if "=" not in gold:
        return gold, _answered(given)
    return (gold, given) if "=" in given else (_answered(gold), given)


def _answered(text: str) -> str:
    relation = relation_of(text) if _LEFT_TO_DO.match(text) else None
    if relation is None or not relation.is_equation:
        return text
    return "=".join(side for side in relation.sides[1:] if not _BETWEEN_BOUNDS.fullmatch(side))
