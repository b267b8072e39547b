r"""The outer form of an answer: a list, tuple, interval, set, matrix or union, with its elements as text.

Invariant: only brackets and separators at the top level count; elements are never interpreted here, only written out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .relations import is_name, relation_of

_OPENING, _CLOSING = "([{", ")]}"
_ENVIRONMENT = re.compile(
    r"^\\begin\{(?P<name>[pbvBV]?matrix|array)\}(?:\{[^{}]*\})?(?P<rows>.*)\\end\{(?P=name)\}$", re.DOTALL
)
_GROUPED_NUMBER = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?!\d)")
_CASES = re.compile(
    r"^\\begin\{(?P<name>cases|aligned|array)\}(?:\{[^{}]*\})?(?P<rows>(?=.*=).*)\\end\{(?P=name)\}$", re.DOTALL
)
_MEMBER = re.compile(r"^[A-Za-z]\s*\\in(?![a-z])\s*")
_NAMED_MATRIX = re.compile(
    r"^(?:[A-Z]|\\vec\s*\{?\s*[a-z]\s*\}?|\\nabla\s*[a-zA-Z](?:\s*\([a-z, ]+\))?)"
    r"(?:\s*\^\s*\{?(?:-?\d|T)\}?)?\s*=\s*(?=[^=&(]{0,40}?(?:\\begin|\\langle))"
)
_ONE_NAME = re.compile(r"(?:[A-Za-z]|\\lambda)\s*=\s*(?P<values>[^=<>,]+,[^=<>]+)")
"""`x=2,3`: one name for several values."""
_PLUS_MINUS = re.compile(r"\\pm(?![a-z])")


@dataclass(frozen=True)
class Structure:
    """`kind` is the pair of brackets, or "list" (none), "matrix" or "determinant" (elements are rows) or "union"."""

    kind: str
    elements: tuple[str, ...]


def structure_of(text: str) -> Structure | None:
    """The outer form of the spelled `text`; `None` for a single expression."""
    text = text.strip()
    if found := _CASES.match(text):
        lines = [line.replace("&", "").strip(" ,") for line in found["rows"].split(r"\\")]
        return Structure("list", tuple(line for line in lines if line))
    if found := _ENVIRONMENT.match(text):
        rows = [row for row in found["rows"].split(r"\\") if row.strip()]
        kind = "determinant" if found["name"] in {"vmatrix", "Vmatrix"} else "matrix"
        return Structure(kind, tuple(row.strip() for row in rows))
    parts = split_top(text, r"\cup")
    if len(parts) > 1:
        return Structure("union", tuple(parts)) if all(structure_of(part) for part in parts) else None
    if bracketed := _bracketed(text):
        return bracketed
    text = _GROUPED_NUMBER.sub(lambda number: number[0].replace(",", ""), text)
    elements = [part for part in split_top(text, ",;") if part]
    return Structure("list", tuple(elements)) if len(elements) > 1 else None


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
    elements = split_top(inner, ",;")
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
    if len(_PLUS_MINUS.findall(text)) == 1:
        return f"{_PLUS_MINUS.sub('+', text).lstrip('+ ')}, {_PLUS_MINUS.sub('-', text)}".replace("=+", "=")
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
    anagrams = {tuple(sorted(word)) for word in words}
    return all(map(str.isupper, words)) or len(anagrams) < len(set(words))


def row_elements(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("&")]


def split_top(text: str, separators: str) -> list[str]:
    r"""`text` split at top-level separators: each character of them, or one command such as `\cup`."""
    depth, start, parts = 0, 0, []
    index = 0
    while index < len(text):
        char = text[index]
        if char == "\\":
            if separators.startswith("\\") and depth == 0 and text.startswith(separators, index):
                end = index + len(separators)
                if not text[end : end + 1].isalpha():
                    parts.append(text[start:index].strip())
                    start = index = end
                    continue
            if text[index + 1 : index + 2] in {"{", "}"}:
                depth += 1 if text[index + 1] == "{" else -1
            index += 2
            continue
        depth += (char in _OPENING) - (char in _CLOSING)
        if depth == 0 and not separators.startswith("\\") and char in separators:
            parts.append(text[start:index].strip())
            start = index + 1
        index += 1
    return [*parts, text[start:].strip()]


def balanced(text: str) -> bool:
    """Whether every bracket closes; a square one may close a round one, as in half-open intervals."""
    stack: list[str] = []
    for previous, char in pairwise(" " + text):
        if char in _OPENING:
            stack.append("{" if char == "{" else "(")
        elif char in _CLOSING:
            if not stack or stack.pop() != ("{" if char == "}" else "("):
                return False
        elif previous == "\\":
            continue
    return not stack
