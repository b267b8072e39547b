r"""Marks in LaTeX that say nothing: colours, fonts around formulas, empty groups, `$` around parts of a text.

Invariant: what stands inside a mark stays, in its place.
"""

import re

_LONGEST = 4000
"""A longer text is no expression that is compared."""
_COLOR = re.compile(r"\\(?:text)?color\s*\{\w*\}\s*|\\(?:displaystyle|mathstrut)(?![A-Za-z])\s*")
_EMPTY = re.compile(r"\\text\s*\{\s*\}|(?<![\\_^}])\{\s*\}")
_FONT = re.compile(r"\\(?P<name>mathrm|mathbf|mathit|mathsf|boldsymbol|bm|pmb|mathop|textbf|textrm|text|fbox)\s*(?=\{)")
_NESTED = re.compile(r"\{[^{}]*\{")
_INLINE = re.compile(r"\$(?=[^\s$])([^$]*?[^\s$\\])\$(?![\d$])|\\\((.+?)\\\)", re.DOTALL)

_LETTER = re.compile(r"\\(?:mathsf|mathrm|mathbf|mathit)\s+([A-Za-z])(?![A-Za-z])")
_UNIT_VECTOR = re.compile(
    r"\\hat\s*(?:\{\s*\\(?:mathbf|text|mathrm|boldsymbol)\s*\{\s*([ijk])\s*\}\s*\}|\{\s*\\?([ijk])(?:math)?\s*\}"
    r"|\s([ijk])(?![A-Za-z]))"
)
"""The roof over a unit vector, which other texts write as a bold letter."""


def without_marks(text: str) -> str:
    """`text` without the marks."""
    if len(text) > _LONGEST:
        return text
    text = _COLOR.sub("", text)
    text = _LETTER.sub(r"\1", _UNIT_VECTOR.sub(_bold, _EMPTY.sub("", text)))
    return _without_fonts(text)


def _bold(found: "re.Match[str]") -> str:
    return rf"\text{{{found[1] or found[2] or found[3]}}}"


def without_math_marks(text: str) -> str:
    """A text without the `$` around its formulas; those of currencies stay."""
    if text.count("$") % 2:
        return text
    return _INLINE.sub(lambda found: found[1] or found[2], text)


def _without_fonts(text: str) -> str:
    r"""Formulas without the font around them; a font stays around what holds no other braces, and `\text` for units."""
    position = 0
    while found := _FONT.search(text, position):
        position = found.end()
        end = closing_brace(text, found.end())
        inner = text[found.end() + 1 : end] if end is not None else ""
        if end is None or not _NESTED.match(text, found.end()) or found["name"] in {"text", "textrm", "fbox"}:
            continue
        name = r"\text" if found["name"] == "mathrm" and re.match(r"\s*[A-Za-z]", inner) else ""
        text = f"{text[: found.start()]}{name}{{{inner}}}{text[end + 1 :]}"
        position = found.start() + len(name)
    return text


def closing_brace(text: str, opening: int) -> int | None:
    """Where the brace at `opening` closes."""
    depth, index = 0, opening
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 2
            continue
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return index
        index += 1
    return None
