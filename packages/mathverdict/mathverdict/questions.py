r"""What a question says of its answer: that it is in percent, cents or degrees, and the texts of its options.

Invariant: a question makes right only what states the reference in the unit that the question asks for, or names the
reference's letter with the text that the question has behind it.
"""

import re

from .choices import WITH_TEXT, reference_choice
from .expressions import rounds_to
from .normalize import normalize, without_lead
from .numbers import read_number
from .words import bare_words

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
    found = WITH_TEXT.fullmatch(bare_words(without_lead(answer))) if question else None
    if found is None:
        return ""
    letter, text = found["round"] or found["plain"], _NO_WORD.sub(" ", found["text"].casefold()).strip()
    option = re.search(rf"(?:^|[\s({{*]){letter}\s*[).:}}*]+(?P<text>(?s:.)*)", question)
    behind = _NO_WORD.sub(" ", bare_words(option["text"])[: 4 * len(answer) + 40].casefold()).strip() if option else ""
    return letter if text and f"{behind} ".startswith(f"{text} ") else ""
