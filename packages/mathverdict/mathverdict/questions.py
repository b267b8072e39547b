r"""Multiple choice (`B`, `\textbf{(B)}`, `(B) 12`), and what a question says of its answer: that it is in percent,
cents or degrees, and the texts of its options.

Invariant: an answer names a choice only if it names no other and takes nothing back. A question makes right only what
states the reference in the unit that the question asks for, or names the reference's letter with the text that the
question has behind it.
"""

import re
from dataclasses import dataclass

from .expressions import rounds_to
from .normalize import normalize, without_lead
from .numbers import read_number
from .words import bare_words

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
_ADJECTIVES = r"(?:(?!(?:of|in|is|are|if|than|and|or|that|to)\b)[\w'’-]+\s+){0,3}?"  # noqa: RUF001
_AS = r"(?:in|as an?)\s+(?:[a-z]+\s+)?"
_ASKED = {
    " percent": re.compile(
        rf"\b(?:(?:what|which)(?:['’]s|\s+(?:is|was|are|were|will\s+be|would\s+be))?|find|calculate|determine|compute"  # noqa: RUF001
        rf"|(?:how|by\s+how)\s+many|nearest)\s+{_ADJECTIVES}(?:percent(?:age)?s?\b|%)"
        rf"|\b{_AS}(?:percent(?:age)?s?\b|%)(?!\s+of\s+\d)",
        re.IGNORECASE,
    ),
    " cents": re.compile(r"\b(?:how\s+(?:many|much)\s+(?:[a-z]+\s+)?|in\s+|number\s+of\s+)cents\b", re.IGNORECASE),
    r"^{\circ}": re.compile(r"\b(?:how\s+many|in|number\s+of|nearest)\s+degrees?\b", re.IGNORECASE),
}
"""Units that change what a figure is, by how a question asks for them."""
_HAS_UNIT = {
    " percent": re.compile(r"%|percent", re.IGNORECASE),
    " cents": re.compile(r"cent|¢|\$|dollar", re.IGNORECASE),
    r"^{\circ}": re.compile(r"degree|circ|°|deg", re.IGNORECASE),
}
_EITHER = re.compile(
    r"\s*,?\s*(?:\\text\s*\{\s*,?\s*or(?:\s+equivalently)?\s*,?\s*\}|\bor(?:\s+equivalently\b,?)?(?![A-Za-z]))\s*"
)
_NO_WORD = re.compile(r"[^0-9a-z]+")


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
    if found is None or _ANOTHER.search(found["text"]) or _RETRACTED.search(found["text"]):
        return None
    return Choice(found["round"] or found["plain"], found["text"])


def readings(reference: str, answer: str, question: str) -> list[tuple[str, str]]:
    """Other pairs, of which each is equal only if `answer` is right for a question that is answered by `reference`."""
    pairs = []
    if (letter := _named_option(answer, question)) and reference_choice(reference):
        pairs.append((reference, letter))
    number = read_number(normalize(without_lead(reference))) if question else None
    for unit, asked in _ASKED.items() if number and not number.percent and abs(number.value) >= 1 else ():
        if _HAS_UNIT[unit].search(answer) and asked.search(question):
            pairs.append((without_lead(reference) + unit, answer))
    return pairs


def alternatives(reference: str) -> list[str]:
    """What a reference joins by "or"; `reference` itself if it does not."""
    return [part for part in _EITHER.split(reference.replace("$", "")) if part] if "or" in reference else [reference]


def is_unrounded(reference: str, answer: str) -> bool:
    """Whether `reference` is a rounded decimal and `answer` a value that rounds to it."""
    return "." in reference and rounds_to(normalize(without_lead(answer)), normalize(without_lead(reference)), share=20)


def _named_option(answer: str, question: str) -> str:
    """The letter that an answer names, if it is followed by the text that the question has for it."""
    found = _WITH_TEXT.fullmatch(bare_words(without_lead(answer))) if question else None
    if found is None:
        return ""
    letter, text = found["round"] or found["plain"], _NO_WORD.sub(" ", found["text"].casefold()).strip()
    option = re.search(rf"(?:^|[\s({{*]){letter}\s*[).:}}*]+(?P<text>(?s:.)*)", question)
    behind = _NO_WORD.sub(" ", bare_words(option["text"])[: 4 * len(answer) + 40].casefold()).strip() if option else ""
    return letter if text and f"{behind} ".startswith(f"{text} ") else ""
