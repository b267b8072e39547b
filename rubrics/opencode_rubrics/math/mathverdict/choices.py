r"""Multiple choice: `B`, `\textbf{(B)}`, `(B) 12`.

Invariant: an answer names a choice only if it names no other and takes nothing back.
"""

import re
from dataclasses import dataclass

from .words import bare_words, takes_back

_LETTER = re.compile(
    r"(?:the\s+)?(?:(?:correct\s+)?(?:option|choice|answer)\s+(?:is\s+)?)?\(?\s*([A-J])\s*[).:]?", re.IGNORECASE
)
_WITH_TEXT = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\(\s*(?P<round>[A-J])\s*\)|(?P<plain>[A-J])\s*[).:](?=\s))\s*:?\s*(?P<text>\S.*)",
    re.DOTALL,
)
_ANOTHER = re.compile(
    r"^\s*(?:or\b|and\b|[,;&/|])|\(\s*[A-J]\s*\)|(?<![\w\\])[A-J]\s*[).:?]|\b(?:or|and|nor|option|choice)\s+[A-J]\b|\?"
)
_REFERENCE = re.compile(r"\(?\s*([A-J])\s*[).]?")


@dataclass(frozen=True)
class Choice:
    """A letter, and the text of the choice or nothing."""

    letter: str
    text: str = ""


def reference_choice(text: str) -> Choice | None:
    r"""The choice that a reference is, such as "(B)" or `\textbf{(B) }12`."""
    bare = bare_words(text)
    if found := _REFERENCE.fullmatch(bare):
        return Choice(found[1])
    found = _WITH_TEXT.fullmatch(bare)
    if found is None or (found["plain"] and "\\text" not in text):
        return None
    return Choice(found["round"] or found["plain"], found["text"])


def answered_choice(text: str) -> Choice | None:
    """The one choice that an answer names, alone or followed by the choice's text."""
    bare = bare_words(text)
    if found := _LETTER.fullmatch(bare):
        return Choice(found[1].upper())
    found = _WITH_TEXT.fullmatch(bare)
    if found is None or _ANOTHER.search(found["text"]) or takes_back(found["text"]):
        return None
    return Choice(found["round"] or found["plain"], found["text"])
