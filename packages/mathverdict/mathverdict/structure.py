r"""The outer form of an answer, as text: equations and inequalities; lists, tuples, intervals, sets, matrices, vectors,
unions with their elements; sets of real numbers; and what a text leaves to be worked out, as `2x=10` for `x=5` does.

Invariant: only signs, brackets and separators at the top level count; elements are never interpreted here. A set of
reals is its sorted pieces, disjoint and as long as they can be. An answer may leave open only what the reference leaves
open, too: whoever checks it can work out nearly everything, so that else the problem itself would be a right answer.
Roots, powers, factorials and functions are names of numbers, and so is what anybody sees at a glance: `\gcd(3,5)`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key, lru_cache, partial
from typing import Any, NamedTuple

from mpmath import mp  # type: ignore[import-untyped]

from .errors import Unparsable
from .grammar import Node, symbols
from .values import SLACK, proportional, read, real, real_number, same_value
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
_KINDS = ("sum prod", "int iint lim", "gcd lcm", "max min", "lfloor lceil", "det")
_KIND_OF = {name: kind for kind in _KINDS for name in kind.split(" ")}
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
_OPENING, _CLOSING = "([{", ")]}"
_ENVIRONMENT = re.compile(
    r"^\\begin\{(?P<name>[pbvBV]?matrix|array)\}(?:\{[^{}]*\})?(?P<rows>.*)\\end\{(?P=name)\}$", re.DOTALL
)
_ungrouped = partial(re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?!\d)").sub, lambda number: number[0].replace(",", ""))
_CASES = re.compile(
    r"^\\begin\{(?P<name>cases|aligned|array)\}(?:\{[^{}]*\})?(?P<rows>(?=.*=).*)\\end\{(?P=name)\}$", re.DOTALL
)
_PIECEWISE = re.compile(r"(?:[^=&]{1,40}=\s*)?\\begin\{cases\}(?P<rows>(?:[^&\\]|\\(?!\\))+&.*)\\end\{cases\}")
_IF = re.compile(r"\\text\{\s*(?:if|for|when)\s*\}")
_MEMBER = re.compile(r"^[A-Za-z]\s*\\in(?![a-z])\s*")
_NAMED_MATRIX = re.compile(
    r"^(?:[A-Z]|\\vec\s*\{?\s*[a-z]\s*\}?|\\nabla\s*[a-zA-Z](?:\s*\([a-z, ]+\))?)"
    r"(?:\s*\^\s*\{?(?:-?\d|T)\}?)?\s*=\s*(?=[^=&(]{0,40}?(?:\\begin|\\langle))"
)
_ONE_NAME = re.compile(r"(?:[A-Za-z]|\\lambda)\s*=\s*(?P<values>[^=<>,]+,[^=<>]+)")
_PLUS_MINUS = re.compile(r"\\pm(?![a-z])")
_UNIT_VECTOR = re.compile(
    r"(?P<before>[\w)}]\s*)?(?:\\cdot\s*)?(?:\\text\{\s*([ijk])\s*\}"
    r"|\\(?:vec|hat|bar|mathbf|boldsymbol|widehat|overrightarrow)\s*"
    r"(?:\{\s*\\?([ijk])(?:math)?\s*\}|\s\\?([ijk])(?:math)?(?![A-Za-z]))|(?<![A-Za-z\\])(?P<plain>[ijk])(?![A-Za-z]))"
)
_SCALED_MATRIX = re.compile(
    r"(?P<factor>[^&=]*?[^&=\s])\s*(?:\\cdot\s*)?\\begin\{(?P<name>[pbB]?matrix)\}(?P<rows>.*)\\end\{(?P=name)\}",
    re.DOTALL,
)
_SCALED_TUPLE = re.compile(
    r"(?P<factor>[-+\d./\\{}a-z\s]*[\d}])\s*(?:\\cdot\s*)?(?P<tuple>(?:\\langle|\().*(?:\\rangle|\)))"
)
_IDENTITY = re.compile(r"I(?:\s*_\s*\{?\s*(\d)(?:\s*\\cdot\s*\d)?\s*\}?)?")
_INFINITE = re.compile(r"(?P<sign>[+-]?)\s*\\infty")
_REALS = r"\\mathbb\s*\{?\s*R\s*\}?"
_LESS_POINTS = re.compile(rf"^({_REALS})\s*(?:\\backslash(?![a-z])|-|/)\s*(?=\\\{{)")
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


def left_open(text: str) -> set[str]:
    """Return what a spelled text leaves to be worked out."""
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
    r"""Return both texts, one of which loses the question it repeats: `\det A=-6` is -6 if the other is not an
    equation."""
    if "=" not in gold:
        return gold, _answered(given)
    return (gold, given) if "=" in given else (_answered(gold), given)


def _answered(text: str) -> str:
    relation = relation_of(text) if _LEFT_TO_DO.match(text) else None
    if relation is None or not relation.is_equation:
        return text
    return "=".join(side for side in relation.sides[1:] if not _BETWEEN_BOUNDS.fullmatch(side))


class Structure(NamedTuple):
    """`kind` is the pair of brackets, or "list" (none), "matrix" or "determinant" (elements are rows) or "union"."""

    kind: str
    elements: tuple[str, ...]


def structure_of(text: str) -> Structure | None:
    """The outer form of the spelled `text`; `None` for a single expression."""
    text = text.strip()
    if (found := _PIECEWISE.fullmatch(text)) and "&=" not in text.replace(" ", ""):
        rows = [row.replace("&", ",") for row in _IF.sub("", found["rows"]).split(r"\\") if row.strip()]
        return Structure("{}", tuple(f"({re.sub(r'[,. ]+,', ',', row.strip(' ,.'))})" for row in rows))
    if found := _CASES.match(text):
        lines = [line.replace("&", "").strip(" ,") for line in found["rows"].split(r"\\")]
        return Structure("list", tuple(line for line in lines if line))
    if found := _ENVIRONMENT.match(text):
        rows = [row for row in found["rows"].split(r"\\") if row.strip()]
        kind = "determinant" if found["name"] in {"vmatrix", "Vmatrix"} else "matrix"
        return Structure(kind, tuple(row.strip() for row in rows))
    if bracketed := _bracketed(text):
        return bracketed
    text = _ungrouped(text)
    elements = [part for part in split_top(text, "[,;]")[0] if part]
    if len(elements) > 1:
        return Structure("list", tuple(elements))
    parts = split_top(text, r"\\cup(?![A-Za-z])")[0]
    return Structure("union", tuple(parts)) if len(parts) > 1 and all(structure_of(part) for part in parts) else None


def _bracketed(text: str) -> Structure | None:
    text = text.replace(r"\langle", "(").replace(r"\rangle", ")").strip()
    if text.startswith(r"\{") and text.endswith(r"\}"):
        kind, inner = "{}", text[2:-2]
    elif len(text) > 1 and text[0] in _OPENING and text[-1] in _CLOSING:
        kind, inner = text[0] + text[-1], text[1:-1]
    else:
        return None
    if not balanced(inner):
        return None
    elements = split_top(inner, "[,;]")[0]
    if kind == "[]" and elements and all(element.startswith("[") and element.endswith("]") for element in elements):
        return Structure("matrix", tuple(element[1:-1].replace(",", "&") for element in elements))
    if len(elements) < 2 and kind != "{}":
        return None
    return Structure(kind, tuple(elements) if inner.strip() else ())


def expanded(text: str) -> str:
    r"""`\pm` written out as two answers, `x \in S` as S, and `(x,y)=(1,2)` as `x=1, y=2`."""
    text = _NAMED_MATRIX.sub("", _MEMBER.sub("", text))
    if text.startswith(r"\{") and text.endswith(r"\}") and not re.search(r"[|:]|\\mid|\\vert", text):
        return rf"\{{{expanded(text[2:-2])}\}}" if r"\pm" in text else text
    if r"\pm" in text and len(parts := split_top(_ungrouped(text), "[,;]")[0]) > 1:
        text = ", ".join(expanded(part) if r"\pm" in part else part for part in parts)
    elif len(_PLUS_MINUS.findall(text)) == 1:
        text = f"{_PLUS_MINUS.sub('+', text).lstrip('+ ')}, {_PLUS_MINUS.sub('-', text)}".replace("=+", "=")
    if one_name := _ONE_NAME.fullmatch(text):
        return one_name["values"]
    relation = relation_of(text) if text.startswith("(") else None
    if relation and relation.signs == ("=",):
        names, values = (structure_of(side) for side in relation.sides)
        alike = names and values and names.kind == values.kind == "()" and len(names.elements) == len(values.elements)
        if names and values and alike and all(map(is_name, names.elements)):
            return ", ".join(f"{name}={value}" for name, value in zip(names.elements, values.elements, strict=True))
    return text


def are_strings(elements: Sequence[str]) -> bool:
    """Whether elements are strings of letters such as `HT`, and no products: several of capitals, or two anagrams."""
    words = [element for element in elements if re.fullmatch(r"[A-Za-z]{2,12}", element)]
    if len(words) < len(elements) or len(words) < 2:
        return False
    return all(map(str.isupper, words)) or len({tuple(sorted(word)) for word in words}) < len(set(words))


def row_elements(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("&")]


def balanced(text: str) -> bool:
    """Whether every bracket closes; a square one may close a round one, as in half-open intervals."""
    stack: list[str] = []
    for char in text:
        if char in _OPENING:
            stack.append("{" if char == "{" else "(")
        elif char in _CLOSING and (not stack or stack.pop() != ("{" if char == "}" else "(")):
            return False
    return not stack


def in_components(gold: str, given: str) -> tuple[str, str]:
    """Return both texts, of which a tuple or column becomes a sum of unit vectors if the other is one."""
    gold, given = without_factor(gold), without_factor(given)
    gold, given = _identity(gold, given), _identity(given, gold)
    cells, others = _cells(gold), _cells(given)
    if cells and not others and (vectors := _unit_vectors(given)):
        return _sum_of_units(cells), vectors
    if others and not cells and (vectors := _unit_vectors(gold)):
        return vectors, _sum_of_units(others)
    return gold, given


def _identity(text: str, other: str) -> str:
    found, form = _IDENTITY.fullmatch(text), structure_of(other)
    if found is None or form is None or form.kind != "matrix" or found[1] not in {None, str(len(form.elements))}:
        return text
    size = range(len(form.elements))
    return _as_matrix("&".join(str(int(row == column)) for column in size) for row in size)


def _as_matrix(rows: Iterable[str]) -> str:
    return r"\begin{pmatrix}" + r"\\".join(rows) + r"\end{pmatrix}"


def without_factor(text: str) -> str:
    """A matrix or tuple with the number before it multiplied into its cells."""
    if found := _SCALED_MATRIX.fullmatch(text):
        factor = "-1" if found["factor"].strip() == "-" else found["factor"]
        lines = filter(str.strip, found["rows"].split(r"\\"))
        rows = ["&".join(f"({factor})\\cdot({cell})" for cell in row_elements(line)) for line in lines]
        return text if tree_of(factor) is None else _as_matrix(rows)
    if found := _SCALED_TUPLE.fullmatch(text):
        node, form = tree_of(found["factor"]), structure_of(found["tuple"])
        if node is not None and not symbols(node) and form and form.kind == "()" and balanced(found["tuple"]):
            times = rf"({found['factor']})\cdot"
            return f"({','.join(f'{times}({cell})' for cell in form.elements)})"
    return text


def _cells(text: str) -> tuple[str, ...]:
    form = structure_of(text)
    cells = form.elements if form and form.kind in {"()", "matrix"} else ()
    return cells if 2 <= len(cells) <= len("ijk") and all("&" not in cell for cell in cells) else ()


def _sum_of_units(cells: tuple[str, ...]) -> str:
    units = list(zip(cells, "ijk", strict=False))
    # What a sum leaves out brings no letter into it.
    shown = [(cell, unit) for cell, unit in units if cell.strip() != "0"] or units
    return "+".join(rf"({cell})\cdot {unit}" for cell, unit in shown)


def _unit_vectors(text: str) -> str:
    """A sum of multiples of unit vectors with these as plain letters; empty if it is anything else, as `2i` is."""
    # A plain i alone is the imaginary unit.
    if relation_of(text) or all(found["plain"] == "i" for found in _UNIT_VECTOR.finditer(text)):
        return ""
    return _UNIT_VECTOR.sub(
        lambda found: rf"{found['before']}\cdot {_letter(found)}" if found["before"] else _letter(found), text
    )


def _letter(found: "re.Match[str]") -> str:
    return next(group for group in found.groups()[1:] if group)


class IntervalEnd(NamedTuple):
    """Tells where a piece ends: at `value`, or right above (`side` 1) or below (-1) it; `None` is infinity on that
    side."""

    value: Any
    side: int = 0


class Interval(NamedTuple):
    """An interval; an infinite end is open."""

    low: IntervalEnd
    high: IntervalEnd


_LOWEST, _HIGHEST = IntervalEnd(None, -1), IntervalEnd(None, 1)


class RealSet(NamedTuple):
    """The pieces in order, and the variable that the text named."""

    pieces: tuple[Interval, ...]
    name: str = ""


def real_set(text: str) -> RealSet | None:
    """The set of real numbers that the spelled `text` is, or `None`."""
    if found := _BUILDER.fullmatch(text):
        inside = real_set(found["condition"])
        return inside if inside and inside.name == found["name"] else None
    if found := _REALS_OF_ONE_SIGN.fullmatch(text):
        mark = re.sub(r"(?<=[<>e])\s*0", "", found["mark"].replace(r"\cdot", "*"))
        interval = _OF_ONE_SIGN.get("".join(sorted(set(re.findall(r"[+\-*0<>]|\\(?:ge|le|ne)", mark)))))
        return real_set(interval) if interval else None
    text = _LESS_POINTS.sub(r"\1\\setminus ", text)
    if r"\setminus" in text:
        return _without(text)
    form = structure_of(text)
    if form and form.kind == "list":
        if len(form.elements) > _MOST:
            return None
        relations = map(relation_of, form.elements)
        parts = [_of_inequality(one) if one else None for one in relations]
        sets = [part for part in parts if part]
        if len(sets) < len(form.elements) or len({part.name for part in sets}) != 1:
            return None
        united = _united(sets)
        if len(united.pieces) == sum(len(part.pieces) for part in sets):
            return RealSet(united.pieces, sets[0].name)
        return _intersection(sets)
    if relation := relation_of(text):
        return None if len(split_top(text, "[,;]")[0]) > 1 else _of_inequality(relation)
    if form is None:
        return None
    if form.kind == "union":
        parts = [real_set(part) or _points(part) for part in form.elements]
        return _united([part for part in parts if part]) if all(parts) else None
    if form.kind in {"()", "[]", "(]", "[)"} and len(form.elements) == 2:
        low, high = _end(form.elements[0], -1, form.kind[0] == "("), _end(form.elements[1], 1, form.kind[1] == ")")
        return RealSet((Interval(low, high),)) if low and high and _distance(low, high) <= -9 else None
    return None


def same_set(gold: RealSet, given: RealSet, rounded: bool) -> bool:
    """Whether two sets have the same pieces, and their variables are not named differently."""
    if gold.name and given.name and gold.name != given.name:
        return False
    return len(gold.pieces) == len(given.pieces) and all(
        _distance(a.low, b.low, rounded) == _distance(a.high, b.high, rounded) == 0
        for a, b in zip(gold.pieces, given.pieces, strict=True)
    )


def _distance(left: IntervalEnd, right: IntervalEnd, rounded: bool = False) -> int:
    """Return how far `left` is above `right`: at most 2 if they are ends at one value, else -9 or less, or 9 or
    more."""
    if left.value is None or right.value is None:
        return 9 * ((left.value is None) * left.side - (right.value is None) * right.side)
    if same_value(left.value, right.value, SLACK, rounded):
        return left.side - right.side
    with mp.workprec(4 * SLACK):
        return 9 if real(left.value) > real(right.value) else -9


_place = cmp_to_key(_distance)


def _end(text: str, direction: int, is_open: bool) -> IntervalEnd | None:
    if found := _INFINITE.fullmatch(text):
        return IntervalEnd(None, direction) if is_open and int(f"{found['sign']}1") == direction else None
    value = real_number(text)
    return None if value is None else IntervalEnd(value, -direction if is_open else 0)


def _points(text: str) -> RealSet | None:
    form = structure_of(text)
    values = [real_number(element) for element in form.elements] if form and form.kind == "{}" else [None]
    if any(value is None for value in values):
        return None
    return _united([RealSet((Interval(IntervalEnd(value), IntervalEnd(value)),)) for value in values])


def _without(text: str) -> RealSet | None:
    base_text, *rest = split_top(text, r"\\setminus(?![A-Za-z])")[0]
    base, points = real_set(base_text), _points(rest[0]) if len(rest) == 1 else None
    if base is None or points is None:
        return None
    values = [piece.low.value for piece in points.pieces]
    lows, highs = (
        [_LOWEST, *(IntervalEnd(value, 1) for value in values)],
        [*(IntervalEnd(value, -1) for value in values), _HIGHEST],
    )
    return _intersection([base, RealSet(tuple(map(Interval, lows, highs)))])


def _of_inequality(relation: Relation) -> RealSet | None:
    sides, signs = list(relation.sides), list(relation.signs)
    if signs == [r"\ne"] and _NAME.fullmatch(sides[0]):
        rest = _without(rf"\mathbb{{R}}\setminus\{{{sides[1]}\}}")
        return rest._replace(name=sides[0]) if rest else None
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
    return RealSet((Interval(low, high),), sides[places[0]]) if low and high else None


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
            Interval(max(left.low, right.low, key=_place), min(left.high, right.high, key=_place))
            for left in pieces
            for right in other.pieces
        ]
        pieces = [piece for piece in met if _distance(piece.low, piece.high) <= 0]
    name = next((part.name for part in sets if part.name), "")
    return RealSet(tuple(pieces), name) if pieces else None


def _united(sets: list[RealSet]) -> RealSet:
    merged: list[Interval] = []
    for piece in sorted((piece for part in sets for piece in part.pieces), key=lambda piece: _place(piece.low)):
        if merged and _distance(piece.low, merged[-1].high) <= 1:
            merged[-1] = Interval(merged[-1].low, max(merged[-1].high, piece.high, key=_place))
        else:
            merged.append(piece)
    return RealSet(tuple(merged), next((part.name for part in sets if part.name), ""))
