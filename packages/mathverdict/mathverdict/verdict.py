r"""The verdict on one answer: right or not, why, and whether its final answers conflict.

Invariant: whatever the answer holds, the result is a verdict; only a reference that states nothing raises. A question
makes right only what states the reference in the unit that it asks for, names the values in its words, or gives the
reference's letter, or the text that it alone has there. Where it asks for an order, no other one is right.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal

from .equality import equal
from .finals import Finals, finals_of_file, finals_of_reply, has_box, reference_value
from .normalize import normalize, unescaped, without_lead
from .notations import WITH_TEXT, answered_choice, reference_choice
from .structure import split_top, structure_of
from .values import read_number, rounds_to
from .words import as_words, bare_words, takes_back

Source = Literal["reply", "file", "any"]
"""A reply, whose answer is boxed; a file, which may be the bare answer; or "any": a reply if anything is boxed."""
_MAX_RIVALS = 40
_SPACES = re.compile(r"[^\S\n]+")
_EMPTY_LINES = re.compile(r"(?: ?\n){3,}")
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


class EmptyReference(ValueError):
    """The task's reference answer states nothing."""


@dataclass(frozen=True)
class Verdict:
    """What the rules found; JSON-safe."""

    right: bool
    reason: str
    """"equal", "different", "conflicting", "incomparable" (the comparison failed on it) or why there is no answer."""
    answer: str = ""
    conflicting: bool = False


def verify_text(
    reference: str, text: str, source: Source = "any", *, question: str = "", unrounded: bool = False
) -> Verdict:
    """The verdict on the answer in `text`, a model's reply or the content of an answer file; `EmptyReference` if the
    reference states nothing. `question` tells units, order, options; `unrounded` takes what rounds to a reference."""
    value = reference_value(reference)
    if not value:
        raise EmptyReference("the reference answer is empty")
    finals = _finals(text, source, question)
    if not finals.answers:
        return Verdict(False, finals.reason)
    try:
        finals = replace(finals, answers=_of_one_kind(value, finals.answers))
        return _compare_finals(partial(_is_right, value, question=question, unrounded=unrounded), finals)
    # Hostile or odd input makes math-verify and sympy raise nearly anything; the answer is the policy's.
    except Exception as error:  # noqa: BLE001
        return Verdict(False, f"incomparable: {type(error).__name__}", finals.answers[-1])


def stated_answer(text: str, source: Source) -> str:
    """The one final answer in `text`, not compared with anything; empty if there is none or more than one."""
    finals = _finals(text, source)
    return finals.joined or (finals.answers[0] if len(finals.answers) == 1 else "")


def _finals(text: str, source: Source, question: str = "") -> Finals:
    text = unescaped(_EMPTY_LINES.sub("\n\n", _SPACES.sub(" ", text)))
    boxed = source == "reply" or (source == "any" and has_box(text))
    return finals_of_reply(text, question) if boxed else finals_of_file(text, question)


def _of_one_kind(value: str, answers: tuple[str, ...]) -> tuple[str, ...]:
    """Of a choice's letter and its value beside each other, `400` and `(A)`, those that are what the reference is."""
    letters = [(choice := reference_choice(text)) is not None and not choice.text for text in (value, *answers)]
    return tuple(answer for answer, letter in zip(answers, letters[1:], strict=True) if letter == letters[0]) or answers


def _is_right(value: str, answer: str, question: str, unrounded: bool) -> bool:
    if any(equal(*pair) for pair in readings(value, answer, question)):
        return True
    first, *others = alternatives(value)
    if others and all(equal(first, other) for other in others):
        return any(equal(part, answer) for part in (first, *others))
    return unrounded and is_unrounded(value, answer)


def _compare_finals(right: Callable[[str], bool], finals: Finals) -> Verdict:
    if finals.joined and right(finals.joined):
        return Verdict(True, "equal", finals.joined)
    answers, last = finals.answers, finals.answers[-1]
    if len(answers) > _MAX_RIVALS:
        return Verdict(False, "conflicting", last, conflicting=True)
    fits = [right(answer) for answer in answers]
    if all(fits):
        return Verdict(True, "equal", last)
    if reading := next(filter(right, finals.stated), ""):
        return Verdict(True, "equal", reading)
    if any(fits) or not all(equal(last, answer) for answer in answers[:-1]):
        return Verdict(False, "conflicting", finals.joined or last, conflicting=not finals.joined)
    return Verdict(False, "different", finals.joined or last)


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
    found = WITH_TEXT.fullmatch(bare_words(without_lead(answer))) if options else None
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
