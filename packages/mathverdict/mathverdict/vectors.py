r"""Vectors, matrices and directions: `\mathbf{i}+2\mathbf{j}` as (1, 2), half a matrix as the halves of its cells,
`53^\circ` north of east.

Invariant: only a sum in which every term has exactly one unit vector is a vector, and only one factor that is a number
stands before a tuple. Anything else stays as it is. Two directions are the same only if they are the same angle from
north; a size before one has to be before the other as well.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from .relations import tree_of
from .structure import balanced, row_elements, split_top, structure_of
from .tree import symbols
from .words import bare_words

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
_LONGEST = 120
_ANGLE = r"(?P<{}>\d{{1,3}}(?:\.\d{{1,9}})?)\s*(?:\^\s*\{{?\s*\\circ\s*\}}?|\u00b0|degrees?)"
_POINT = r"(?P<{}>north|south|east|west|N|S|E|W)"
_BEARING = re.compile(
    rf"(?P<size>.*?)\s*(?:(?:,|;|\bat\b|\bin (?:the|a) direction(?: of)?\b|\bdirected\b)\s*)*(?:an angle of\s+)?"
    rf"(?:{_ANGLE.format('angle')}\s*{_POINT.format('to')}\s*(?:of)\s*(?:due\s+)?{_POINT.format('base')}"
    rf"|{_POINT.format('from')}\s*{_ANGLE.format('by')}\s*{_POINT.format('toward')})",
    re.DOTALL,
)
_AZIMUTH = {"n": 0, "e": 90, "s": 180, "w": 270}


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
    """The identity matrix that `text` names, of the size of the other square matrix; else `text`."""
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
    if form.kind == "matrix" and len(form.elements) == 1:
        return len(row_elements(form.elements[0]))
    return len(form.elements) if all("&" not in row for row in form.elements) else 0


def _as_tuple(text: str, size: int) -> str:
    """A sum of multiples of unit vectors as a tuple of `size`; empty if it is not one."""
    if size not in {2, 3} or "=" in text or not _ANY.search(text):
        return ""
    unit = _MARKED if _MARKED.search(text) else _ANY
    found: dict[str, str] = {}
    for term in filter(None, split_top(_marked_signs(text), "\0")):
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


def _marked_signs(text: str) -> str:
    """A sum with a mark before each term."""
    depth, marked = 0, ""
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        marked += f"\0{char}" if depth == 0 and char in "+-" else char
    return marked


def same_bearing(gold: str, given: str, equal: Callable[[str, str], bool]) -> bool | None:
    """Whether two texts say the same size and direction; `None` unless both say a direction."""
    wanted, found = _bearing(gold), _bearing(given)
    if wanted is None or found is None:
        return None
    if wanted[1] != found[1] or bool(wanted[0]) != bool(found[0]):
        return False
    return not wanted[0] or equal(wanted[0], found[0])


def _bearing(text: str) -> tuple[str, Fraction] | None:
    """The size, and the angle from north."""
    if len(text) > _LONGEST:
        return None
    bare = re.sub(r"\\[,;:!]", " ", bare_words(text)).strip(" .")
    found = _BEARING.fullmatch(bare)
    if found is None:
        return None
    base, to = (name[0].casefold() for name in (found["base"] or found["from"], found["to"] or found["toward"]))
    turn = (_AZIMUTH[to] - _AZIMUTH[base]) % 360
    angle = Fraction(found["angle"] or found["by"])
    if turn not in {90, 270} or angle > 90:
        return None
    return found["size"].strip(), (_AZIMUTH[base] + (angle if turn == 90 else -angle)) % 360
