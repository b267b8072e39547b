r"""Multiple choice: `B`, `\textbf{(B)}`, `(B) 12`.

Invariant: an answer names a choice only if it names no other and takes nothing back.
"""

import re
from dataclasses import dataclass

from .words import bare_words

_LETTER = re.compile(
    r"(?:the\s+)?(?:(?:correct\s+)?(?:option|choice|answer)\s+(?:is\s+)?)?\(?\s*([A-J])\s*[).:]?", re.IGNORECASE
)
WITH_TEXT = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\(\s*(?P<round>[A-J])\s*\)|(?P<plain>[A-J])\s*[).:](?=\s))\s*:?\s*(?P<text>\S.*)",
    re.DOTALL,
)
_ANOTHER = re.compile(
    r"^\s*(?:or\b|and\b|[,;&/|])|\(\s*[A-J]\s*\)|(?<![\w\\])[A-J]\s*[).:?]|\b(?:or|and|nor|option|choice)\s+[A-J]\b|\?"
)
_RETRACTED = re.compile(
    r"^(?:is|was|isn|can|could|would|should|might|may|seems?|looks?|as|if|not|no|wrong|incorrect|false)\b(?!,)"
    r"|\b(?:not|rather|instead|but|no)\W+[A-J](?![\w'])|\b(?:wait|actually|sorry|oops|correction|scratch|ignore|guess"
    r"|unsure|maybe|perhaps|possibly|mistaken?)\b|\b(?:that|this|it|answer|choice|option)(?:['\u2019]s|\s+is|\s+was)"
    r"(?:\s+\w+)?\s+(?:wrong|incorrect|false|not)\b",
    re.IGNORECASE,
)
"""A text that speaks of the choice; one of its own may deny what it likes."""
_LETTERS = re.compile(
    r"(?i:(?:the\s+)?(?:correct\s+)?(?:options?|choices?|answers?|statements?)\s+(?:are\s+)?)?(?i:both\s+)?"
    r"\(?[A-J]\)?(?:\s*(?:[,;/&]\s*(?:and\b)?|and\b)\s*\(?[A-J]\)?)+"
)
_REFERENCE = re.compile(r"\(?\s*([A-J])\s*[).]?")


@dataclass(frozen=True)
class Choice:
    """A letter, and the text of the choice or nothing."""

    letter: str
    text: str = ""


def same_choices(reference: str, answer: str) -> bool | None:
    """Whether an answer names the several letters of the reference; `None` if the reference is not such a list."""
    wanted, given = _several(reference), _several(answer)
    if wanted is None:
        return None
    if given is None and re.search(r"\bor\b", bare_words(answer)):
        return False
    if given is None and (found := re.fullmatch(r"\(?([A-J]{2,})\)?", bare_words(answer).strip("."))):
        given = frozenset(found[1]) if list(found[1]) == sorted(set(found[1])) else frozenset()
    return None if given is None else wanted == given


def _several(text: str) -> frozenset[str] | None:
    bare = bare_words(text).strip(". ")
    found = re.findall(r"(?<![A-Za-z])[A-J](?![A-Za-z])", bare) if len(bare) < 100 and _LETTERS.fullmatch(bare) else []
    return frozenset(found) if len(set(found)) == len(found) > 1 else None


def reference_choice(text: str) -> Choice | None:
    r"""The choice that a reference is, such as "(B)" or `\textbf{(B) }12`."""
    bare = bare_words(text)
    if found := _REFERENCE.fullmatch(bare):
        return Choice(found[1])
    found = WITH_TEXT.fullmatch(bare)
    if found is None or (found["plain"] and "\\text" not in text):
        return None
    return Choice(found["round"] or found["plain"], found["text"])


def answered_choice(text: str) -> Choice | None:
    """The one choice that an answer names, alone or followed by the choice's text."""
    bare = bare_words(text)
    if found := _LETTER.fullmatch(bare):
        return Choice(found[1].upper())
    found = WITH_TEXT.fullmatch(bare)
    if found is None or _ANOTHER.search(found["text"]) or _RETRACTED.search(found["text"]):
        return None
    return Choice(found["round"] or found["plain"], found["text"])
