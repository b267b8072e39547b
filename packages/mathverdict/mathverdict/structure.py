r"""The outer form of an answer: a list, tuple, interval, set, matrix or union, with its elements as text; and the form
of a vector or matrix beside another: `\mathbf{i}+2\mathbf{j}` as (1, 2), half a matrix as the halves of its cells.

Invariant: only brackets and separators at the top level count; elements are never interpreted here, only written out.
Only a sum in which every term has exactly one unit vector is a vector, and only one factor that is a number stands
before a tuple.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .relations import is_name, relation_of, split_top, tree_of
from .tree import symbols

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
_UNIT = (
    r"\\text\{\s*([ijk])\s*\}|\\(?:vec|hat|bar|mathbf|boldsymbol|widehat|overrightarrow)\s*"
    r"(?:\{\s*\\?([ijk])(?:math)?\s*\}|\s\\?([ijk])(?:math)?(?![A-Za-z]))"
)
_MARKED = re.compile(_UNIT)
_ANY = re.compile(rf"{_UNIT}|(?<![A-Za-z\\])([ijk])(?![A-Za-z])")
_SCALED_MATRIX = re.compile(
    r"(?P<factor>[^&=]*?[^&=\s])\s*(?:\\cdot\s*)?\\begin\{(?P<name>[pbB]?matrix)\}(?P<rows>.*)\\end\{(?P=name)\}",
    re.DOTALL,
)
_SCALED_TUPLE = re.compile(
    r"(?P<factor>[-+\d./\\{}a-z\s]*[\d}])\s*(?:\\cdot\s*)?(?P<tuple>(?:\\langle|\().*(?:\\rangle|\)))"
)
_IDENTITY = re.compile(r"I(?:\s*_\s*\{?\s*(\d)(?:\s*\\cdot\s*\d)?\s*\}?)?")


@dataclass(frozen=True)
class Structure:
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
    """Both texts, of which one in unit vectors becomes a tuple if the other is a tuple or a column."""
    gold, given = without_factor(gold), without_factor(given)
    gold, given = _identity(gold, given), _identity(given, gold)
    sizes = _size(gold), _size(given)
    if sizes[0] and not sizes[1]:
        given = _as_tuple(given, sizes[0]) or given
    elif sizes[1] and not sizes[0]:
        gold = _as_tuple(gold, sizes[1]) or gold
    return gold, given


def _identity(text: str, other: str) -> str:
    found, form = _IDENTITY.fullmatch(text), structure_of(other)
    if found is None or form is None or form.kind != "matrix" or found[1] not in {None, str(len(form.elements))}:
        return text
    size = range(len(form.elements))
    cells = r"\\".join("&".join(str(int(row == column)) for column in size) for row in size)
    return rf"\begin{{pmatrix}}{cells}\end{{pmatrix}}"


def without_factor(text: str) -> str:
    """A matrix or tuple with the number before it multiplied into its cells."""
    if found := _SCALED_MATRIX.fullmatch(text):
        factor = "-1" if found["factor"].strip() == "-" else found["factor"]
        if "begin" in found["rows"] or tree_of(factor) is None:
            return text
        lines = filter(str.strip, found["rows"].split(r"\\"))
        rows = [[f"({factor})\\cdot({cell})" for cell in row_elements(line)] for line in lines]
        cells = r"\\".join("&".join(row) for row in rows)
        return rf"\begin{{pmatrix}}{cells}\end{{pmatrix}}"
    if found := _SCALED_TUPLE.fullmatch(text):
        node, form = tree_of(found["factor"]), structure_of(found["tuple"])
        if node is not None and not symbols(node) and form and form.kind == "()" and balanced(found["tuple"]):
            times = rf"({found['factor']})\cdot"
            return f"({','.join(f'{times}({cell})' for cell in form.elements)})"
    return text


def _size(text: str) -> int:
    form = structure_of(text)
    if form is None or form.kind not in {"()", "matrix"}:
        return 0
    return len(form.elements) if all("&" not in row for row in form.elements) else 0


def _as_tuple(text: str, size: int) -> str:
    """A sum of multiples of unit vectors as a tuple of `size`; empty if it is not one."""
    if size not in {2, 3} or "=" in text or not _ANY.search(text):
        return ""
    unit = _MARKED if _MARKED.search(text) else _ANY
    found: dict[str, str] = {}
    terms, signs = split_top(text, "[+-]")
    for term in filter(None, map("".join, zip(["", *signs], terms, strict=True))):
        names = list(unit.finditer(term))
        if len(names) != 1:
            return ""
        name = next(group for group in names[0].groups() if group)
        before, behind = term[: names[0].start()].strip(), term[names[0].end() :].strip()
        factor = before.removesuffix(r"\cdot").strip()
        factor = f"{factor}1" if factor in {"", "-", "+"} else factor
        if behind or name in found or tree_of(factor) is None:
            return ""
        found[name] = factor.lstrip("+")
    if (unit is _ANY and set(found) <= {"i"}) or (size == 2 and "k" in found):
        return ""
    return f"({','.join(found.get(name, '0') for name in 'ijk'[:size])})"
