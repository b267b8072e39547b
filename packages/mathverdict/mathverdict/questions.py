r"""Multiple choice (`B`, `\textbf{(B)}`, `(B) 12`), and what a question says of its answer: that it is in percent,
cents, degrees or an order, and the texts of its options.

Invariant: an answer names a choice only if it names no other and takes nothing back. A question makes right only what
states the reference in the unit that it asks for, names the values in its words, or gives the reference's letter, or
the text that it alone has there. Where it asks for an order, no other one is right.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from .normalize import normalize, without_lead
from .structure import split_top, structure_of
from .values import read_number, rounds_to
from .words import as_words, bare_words, takes_back

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
_UNITS_ASKED_FOR = {
    " percent": (
        re.compile(
            rf"\b(?:(?:what|which)(?:['’]s|\s+(?:is|was|are|were|will\s+be|would\s+be))?|find|calculate|determine|compute"  # noqa: RUF001
            rf"|(?:how|by\s+how)\s+many|nearest)\s+{_ADJECTIVES}(?:percent(?:age)?s?\b|%)"
            rf"|\b{_AS}(?:percent(?:age)?s?\b|%)(?!\s+of\s+\d)",
            re.IGNORECASE,
        ),
        re.compile(r"%|percent", re.IGNORECASE),
    ),
    " cents": (
        re.compile(r"\b(?:how\s+(?:many|much)\s+(?:[a-z]+\s+)?|in\s+|number\s+of\s+)cents\b", re.IGNORECASE),
        re.compile(r"cent|¢|\$|dollar", re.IGNORECASE),
    ),
    r"^{\circ}": (
        re.compile(r"\b(?:how\s+many|in|number\s+of|nearest)\s+degrees?\b", re.IGNORECASE),
        re.compile(r"deg|circ|°", re.IGNORECASE),
    ),
}
"""What a question says that asks for a unit, and what an answer has that gives it."""
_EITHER = re.compile(
    r"\s*,?\s*(?:\\text\s*\{\s*,?\s*or(?:\s+equivalently)?\s*,?\s*\}|\bor(?:\s+equivalently\b,?)?(?![A-Za-z]))\s*"
)
_QUANTITY = (
    r"(?:values? of )?(?:\w+ )?[\\${]*(?:mean|median|mode|range|variance|deviation|max(?:imum)?|min(?:imum)?|area"
    r"|(?:mathrm\{)?(?:gcd|lcm)|sum|difference|product|quotient|remainder|length|width|height|radius|diameter|slope"
    r"|cent(?:er|re)|perimeter|volume|intercept|[a-z])(?![a-z])"
)
_IN_ORDER = re.compile(
    r"\b(?:first|last|next)\s+(?:\w+\s+){1,2}terms\b|\border(?:ed (?:pair|triple|list)|:| from)|\brespectively\b"
    r"|\bin (?:that|this|the same|(?:in|de)creasing|(?:a|de)scending|alphabetical|chronological|numerical) order\b"
    r"|\bfrom (?:the )?(?:least|smallest|lowest|shortest|largest|greatest|highest|longest|tallest) to\b"
    r"|\b(?:give|state|list|put|name) (?:the )?[\w\s]{1,30}\bfirst\b|\b(?:find|compute|calculate|determine|state|give"
    rf"|what (?:is|are)) (?:both )?(?:the )?{_QUANTITY}[^.?!\n]{{0,40}}?\band (?:the )?{_QUANTITY}",
    re.IGNORECASE,
)
_asks_for_order = lru_cache(maxsize=16)(_IN_ORDER.search)
_REMARK = re.compile(r"\s*\((?:(?:at|when|for) \$?[a-z]\s*=[^()]*|(?:with )?multiplicity \w+|double(?: root)?)\)")
_NAMED = re.compile(
    r"(?:[Tt]he\s+)?(?:[a-z ]{1,40}\bis\s+(?=[a-z]\s*=))?"
    r"(?P<name>[A-Za-z\\][^=:<>]*?)(?:\s*(?:=|:|\bis\b|\bof\b)\s*|\s+(?=[-(\[]*\d))(?P<value>[^=:<>]+)"
)
_NO_WORD = re.compile(r"[^0-9a-z]+")
_LONGEST = 400
_SEVERAL = re.compile(r"[,;]|\band\b")
_OPTION = re.compile(r"(?:^|(?<=[\s({*]))\(?([A-J])\s*[).:}*]+(?=\s)")
_SERIES_GOES_ON = re.compile(r"\s*(?:[-+,](?:\\?\s)*(?:\\[lc]?dots|\.\.\.|\u2026))+[\s$.]*$")


class Choice(NamedTuple):
    """A letter, and the text of the choice or nothing."""

    letter: str
    text: str = ""


def same_choices(reference: str, answer: str) -> bool | None:
    """Whether an answer names the several letters of the reference; `None` if the reference is not such a list."""
    wanted, given = _several(reference), _several(answer)
    if given and wanted is None and re.fullmatch("[A-J]{2,}", bare := bare_words(reference)):
        wanted = frozenset(bare)
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


def readings(reference: str, answer: str, question: str) -> Iterator[tuple[str, str]]:
    """Pairs of which each is equal only if `answer` is right for a question that is answered by `reference`."""
    ordered = _as_tuple(reference) if _asks_for_order(question) else reference
    yield ordered, answer
    shorter = _REMARK.sub("", answer) if len(answer) < _LONGEST else answer
    wanted, found = _named_values(_REMARK.sub("", reference)), _named_values(shorter)
    if found and wanted.keys() == found.keys():
        yield _tuple(wanted.values()), _tuple(found[name] for name in wanted)
    elif found and not wanted:
        words = _NO_WORD.sub(" ", question.casefold())
        places = {name: at.start() for name in found if len(name) > 1 and (at := re.search(rf"\b{name}\b", words))}
        if len(set(places.values())) == len(found):
            yield _as_tuple(reference), _tuple(found[name] for name in sorted(found, key=places.__getitem__))
    if re.search(r"\bterms?\b", question):
        shorter = _SERIES_GOES_ON.sub("", shorter)
    if shorter != answer:
        yield ordered, shorter
    if choice := reference_choice(reference):
        options = _options(question)
        if letter := _named_option(answer, options):
            yield reference, letter
        if choice.letter in options and answered_choice(answer) is None:
            yield options[choice.letter], answer
    number = read_number(normalize(without_lead(reference))) if question else None
    bare = number and not number.percent and abs(number.value) >= 1
    for unit, (asked, has) in _UNITS_ASKED_FOR.items() if bare else ():
        if has.search(answer) and asked.search(question):
            yield without_lead(reference) + unit, answer


@lru_cache(maxsize=256)
def _named_values(text: str) -> dict[str, str]:
    """What a text says of each of several names, such as "mean = 9, median = 8"; empty if it is anything else."""
    parts = (
        split_top(normalize(without_lead(text)), "[,;]")[0] if len(text) < _LONGEST and _SEVERAL.search(text) else []
    )
    found = [_NAMED.fullmatch(part) for part in parts]
    names = {
        _NO_WORD.sub(" ", each["name"].casefold().replace("\\text", "")).strip(): each["value"]
        for each in found
        if each
    }
    doubtful = any(takes_back(name) or re.search(r"\b(?:or|than|least|most)\b", name) for name in names)
    return names if len(names) == len(parts) > 1 and not doubtful else {}


def _tuple(values: Iterable[str]) -> str:
    return f"({', '.join(values)})"


def _as_tuple(text: str) -> str:
    form = structure_of(normalize(text))
    return _tuple(form.elements) if form and form.kind == "list" and as_words(text) is None else text


def alternatives(reference: str) -> list[str]:
    """What a reference joins by "or"; `reference` itself if it does not."""
    return [part for part in _EITHER.split(reference.replace("$", "")) if part] if "or" in reference else [reference]


def is_unrounded(reference: str, answer: str) -> bool:
    """Whether `reference` is a rounded decimal and `answer` a value that rounds to it."""
    return "." in reference and rounds_to(normalize(without_lead(answer)), normalize(without_lead(reference)), share=20)


def _named_option(answer: str, options: dict[str, str]) -> str:
    found = _WITH_TEXT.fullmatch(bare_words(without_lead(answer))) if options else None
    if found is None:
        return ""
    letter, text = found["round"] or found["plain"], _NO_WORD.sub(" ", found["text"].casefold()).strip()
    behind = _NO_WORD.sub(" ", bare_words(options.get(letter, "")).casefold()).strip()
    return letter if text and f"{behind} ".startswith(f"{text} ") else ""


@lru_cache(maxsize=16)
def _options(question: str) -> dict[str, str]:
    """The different texts of the options that a question lists, by their letters from A on."""
    _, *parts = _OPTION.split(question)
    letters, texts = parts[::2], [part.strip(" ,;.\n") for part in parts[1::2]]
    listed = 1 < len(set(texts)) == len(texts) and "ABCDEFGHIJ".startswith("".join(letters))
    return dict(zip(letters, texts, strict=True)) if listed else {}
