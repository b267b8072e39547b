r"""The verdict on one answer: right or not, why, and whether its final answers conflict; and whether two answers are
the same: as choice, words, structure, notation, relation, set, quantity or expression.

Invariant: whatever the answer holds, the result is a verdict; only a reference that states nothing raises. The first
form that fits the reference decides, and a part of an answer that no form reads makes it different. A question makes
right only what states the reference in its unit, its words or its options, and in the order that it asks for.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from .errors import EmptyReference, Unparsable
from .finals import FinalAnswers, finals_of_file, finals_of_reply, has_box, reference_value
from .normalize import normalize, unescaped, without_lead
from .notations import (
    WITH_TEXT,
    Choice,
    answered_choice,
    reference_choice,
    renamed,
    same_choices,
    same_date,
    same_notation,
    same_progression,
    without_domains,
)
from .quantities import quantity_of, same_parts, same_quantity
from .structure import (
    Relation,
    Structure,
    are_strings,
    balanced,
    expanded,
    in_components,
    is_name,
    is_solved,
    left_open,
    real_set,
    relation_of,
    row_elements,
    same_relation,
    same_set,
    says,
    split_top,
    structure_of,
    without_question,
)
from .values import constant_apart, equal_trees, read, read_number, rounds_to, same_number
from .words import as_words, bare_words, meaning, same_words, takes_back

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
MAX_EXPRESSION_CHARS = 2000
_MAX_DEPTH = 5
_ORDER = re.compile(r"\\(?:le|ge|ne)(?![a-z])|[<>]")
_CALCULUS = re.compile(r"\\(?:int|iint|lim|sum|prod)(?![A-Za-z])|\\begin\{[pbvBV]?matrix\}|\\frac\s*\{\s*d\s*\}")
_CONSTANT = re.compile(r"\+\s*[cCkK]$")
_NOTATIONS = (("date", same_date), ("choice", same_choices), ("progression", same_progression))


@dataclass(frozen=True)
class Verdict:
    """Holds what the rules found; JSON-safe."""

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
        finals = finals._replace(answers=_of_one_kind(value, finals.answers))
        return _compare_finals(partial(_is_right, value, question=question, unrounded=unrounded), finals)
    # Hostile or odd input makes math-verify and sympy raise nearly anything; the answer is the policy's.
    except Exception as error:  # noqa: BLE001
        return Verdict(False, f"incomparable: {type(error).__name__}", finals.answers[-1])


def stated_answer(text: str, source: Source) -> str:
    """The one final answer in `text`, not compared with anything; empty if there is none or more than one."""
    finals = _finals(text, source)
    return finals.joined or (finals.answers[0] if len(finals.answers) == 1 else "")


def _finals(text: str, source: Source, question: str = "") -> FinalAnswers:
    text = unescaped(_EMPTY_LINES.sub("\n\n", _SPACES.sub(" ", text)))
    boxed = source == "reply" or (source == "any" and has_box(text))
    return finals_of_reply(text, question) if boxed else finals_of_file(text, question)


def _of_one_kind(value: str, answers: tuple[str, ...]) -> tuple[str, ...]:
    """Return, of a choice's letter and its value beside each other, `400` and `(A)`, those that are what the reference
    is."""
    letters = [(choice := reference_choice(text)) is not None and not choice.text for text in (value, *answers)]
    return tuple(answer for answer, letter in zip(answers, letters[1:], strict=True) if letter == letters[0]) or answers


def _is_right(value: str, answer: str, question: str, unrounded: bool) -> bool:
    if any(equal(*pair) for pair in readings(value, answer, question)):
        return True
    first, *others = filter(None, _EITHER.split(value.replace("$", ""))) if "or" in value else (value,)
    if others and all(equal(first, other) for other in others):
        return any(equal(part, answer) for part in (first, *others))
    if not unrounded or "." not in value:
        return False
    return rounds_to(normalize(without_lead(answer)), normalize(without_lead(value)), share=20)


def _compare_finals(right: Callable[[str], bool], finals: FinalAnswers) -> Verdict:
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
    """Return what a text says of each of several names, such as "mean = 9, median = 8"; empty if it is anything
    else."""
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


class Comparison(NamedTuple):
    """Whether two texts are the same, and the form in which they were compared, such as "words" or "number"."""

    equal: bool
    form: str


def equal(reference: str, answer: str, depth: int = 0) -> bool:
    """Whether `answer` states the same as `reference`; the two are not interchangeable: the reference sets the form."""
    return compare(reference, answer, depth).equal


def compare(reference: str, answer: str, depth: int = 0) -> Comparison:
    """The same with the form that decided; `depth` counts the structures around the two."""
    if depth == 0:
        reference, answer = unescaped(reference), unescaped(answer)
    if reference.split() == answer.split() or len(answer) > 2 * MAX_EXPRESSION_CHARS:
        return Comparison(reference.split() == answer.split(), "text")
    reference, answer = meaning(without_lead(reference)), meaning(without_lead(answer))
    if reference.split() == answer.split():
        return Comparison(True, "text")
    for form, same in _NOTATIONS:
        if (decided := same(reference, answer)) is not None:
            return Comparison(decided, form)
    choice = reference_choice(reference)
    if choice:
        if (decided := _same_choice(choice, answer, depth)) is not None:
            return Comparison(decided, "choice")
    elif (named := answered_choice(answer)) and named.text and equal(reference, named.text, depth + 1):
        return Comparison(True, "choice")
    elif (decided := same_words(reference, answer)) is not None:
        return Comparison(decided, "words")
    return _compare_formulas(*without_domains(reference, answer), depth)


def _compare_formulas(reference: str, answer: str, free: frozenset[str], depth: int) -> Comparison:
    gold, given = normalize(reference), normalize(answer)
    if gold == given and gold:
        return Comparison(True, "text")
    if max(len(gold), len(given)) > MAX_EXPRESSION_CHARS or depth > _MAX_DEPTH or not _whole(given):
        return Comparison(False, "text")
    gold, given = without_question(gold, given)
    if not left_open(given) <= left_open(gold):
        return Comparison(False, "unevaluated")
    if (amounts := same_parts(gold, given)) is not None:
        return Comparison(amounts, "quantity")
    found = Comparison(False, "text")
    for text in renamed(gold, given, free):
        left, right = in_components(expanded(gold), expanded(text))
        found = Comparison(True, "text") if left == right else _compare_normalized(left, right, depth)
        if found.equal:
            break
    return found


def _same_choice(choice: Choice, answer: str, depth: int) -> bool | None:
    given = answered_choice(answer)
    if given and (given.text or given.letter == choice.letter or choice.text):
        texts = choice.text and given.text
        return given.letter == choice.letter and (not texts or equal(choice.text, given.text, depth + 1))
    return equal(choice.text, answer, depth + 1) if choice.text else None


def _whole(text: str) -> bool:
    return bool(text) and balanced(text) and text[-1] not in "+-*/^_=<" and not text.endswith(r"\cdot")


def _compare_normalized(gold: str, given: str, depth: int) -> Comparison:
    form, other = structure_of(gold), structure_of(given)
    lists = {"list"} & {found.kind for found in (form, other) if found}
    if not lists and (decided := _compare_relations(gold, given, depth)) is not None:
        return decided
    kind = next((found.kind for found in (form, other) if found), "")
    if form and other:
        if _same_structure(form, other, depth):
            return Comparison(True, kind)
    elif (alone := _only_element(form or other)) and equal(*((alone, given) if form else (gold, alone)), depth + 1):
        return Comparison(True, kind)
    if kind or _ORDER.search(gold) or _ORDER.search(given) or r"\mathbb" in gold + given:
        decided_set = _same_real_set(gold, given)
        if decided_set is not None:
            return Comparison(decided_set, "set of reals")
    return Comparison(False, kind) if kind else _compare_single(gold, given, depth)


def _only_element(form: Structure | None) -> str:
    single = form is not None and form.kind == "{}" and len(form.elements) == 1
    return form.elements[0] if form and single and form.elements[0] != r"\emptyset" else ""


def _compare_relations(gold: str, given: str, depth: int) -> Comparison | None:
    """The comparison of two texts of which one has a notation of its own or a relation sign; else `None`."""
    inner = partial(equal, depth=depth + 1)
    if (decided := same_notation(gold, given, inner)) is not None:
        return Comparison(decided, "notation")
    relation, other = relation_of(gold), relation_of(given)
    if other and r"\approx" in other.signs and not (relation and r"\approx" in relation.signs):
        same = _same_approximation(gold, other, inner)
    elif relation and other:
        solved = not is_solved(relation) or is_solved(other)
        same = solved and (same_relation(relation, other, inner) or _same_real_set(gold, given) or False)
    elif other:
        if not other.is_equation and _ORDER.search(given):
            return None
        same = other.is_equation and says(other, gold, inner)
    elif relation:
        if not relation.is_equation and _ORDER.search(gold):
            return None
        same = relation.is_equation and is_name(relation.sides[0]) and inner(relation.sides[-1], given)
    else:
        return None
    return Comparison(same, "relation")


def _same_approximation(gold: str, relation: Relation, inner: "partial[bool]") -> bool:
    r"""`\pi \approx 3.14` against a value: a value, and behind it what it is when it is rounded to fewer digits."""
    sides = relation.sides
    exact = Relation(sides[:-1], relation.signs[:-1]) if len(sides) > 2 else None
    if not exact and is_name(sides[0]) and sides[0] not in gold:
        return inner(gold, sides[1])
    stated = says(exact, gold, inner) if exact else inner(gold, sides[0])
    return (stated or inner(gold, sides[-1])) and rounds_to(sides[-2], sides[-1])


def _same_real_set(gold: str, given: str) -> bool | None:
    left = real_set(gold)
    right = real_set(given) if left else None
    return same_set(left, right, rounded="." in gold + given) if left and right else None


def _same_structure(form: Structure, other: Structure, depth: int) -> bool:
    kinds = {form.kind, other.kind}
    if kinds == {"matrix"}:
        rows, others = ([row_elements(row) for row in side.elements] for side in (form, other))
        return len(rows) == len(others) and all(_ordered(*pair, depth) for pair in zip(rows, others, strict=True))
    if "matrix" in kinds:
        matrix, vector = (form, other) if form.kind == "matrix" else (other, form)
        rows = [row_elements(row) for row in matrix.elements]
        if vector.kind not in {"()", "[]", "list"} or not (len(rows) == 1 or all(len(row) == 1 for row in rows)):
            return False
        cells = [cell for row in rows for cell in row]
        left, right = (cells, _in_order(vector)) if matrix is form else (_in_order(vector), cells)
        return _ordered(left, right, depth)
    if form.kind == other.kind or kinds == {"{}", "list"}:
        if are_strings(form.elements) or are_strings(other.elements):
            return form.elements == other.elements if "()" in kinds else sorted(form.elements) == sorted(other.elements)
        names, given = _names(form), _names(other)
        # The roots that an answer numbers are a list as those that it does not.
        several = len({name.partition("_")[0] for name in given}) > 1
        named = (len(names) == len(form.elements) > 1 and not given) or (several and not names)
        if form.kind in {"{}", "list"} and not named:
            return _same_elements(form, other, depth)
        return _ordered(_in_order(form), _in_order(other), depth)
    return kinds == {"()", "list"} and _ordered(_in_order(form), _in_order(other), depth)


def _in_order(form: Structure) -> tuple[str, ...]:
    """The elements; those that assign letters which follow each other, in the order of these."""
    letters = "".join(sorted(_names(form)))
    following = 1 < len(form.elements) == len(letters) and letters in "abcdefghijklmnopqrstuvwxyz"
    return tuple(sorted(form.elements)) if following else form.elements


def _names(form: Structure) -> set[str]:
    relations = [relation_of(element) for element in form.elements]
    return {found.sides[0] for found in relations if found and found.is_equation and is_name(found.sides[0])}


def _ordered(left: Sequence[str], right: Sequence[str], depth: int) -> bool:
    return len(left) == len(right) and all(equal(a, b, depth + 1) for a, b in zip(left, right, strict=True))


def _same_elements(form: Structure, other: Structure, depth: int) -> bool:
    if _unordered(form.elements, other.elements, depth):
        return True
    if form.kind == other.kind == "list" or len(other.elements) > 2 * len(form.elements) + 2:
        return False
    wanted, found = (_distinct(side.elements, depth) if side.kind == "{}" else side.elements for side in (form, other))
    return _unordered(wanted, found, depth)


def _unordered(left: Sequence[str], right: Sequence[str], depth: int) -> bool:
    if len(left) != len(right):
        return False
    rest = list(right)
    for wanted in left:
        match = next((given for given in rest if equal(wanted, given, depth + 1)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


def _distinct(elements: Sequence[str], depth: int) -> list[str]:
    kept: list[str] = []
    for element in elements:
        if not any(equal(known, element, depth + 1) for known in kept):
            kept.append(element)
    return kept


def _compare_single(gold: str, given: str, depth: int) -> Comparison:
    number, other = read_number(gold), read_number(given)
    if number and other:
        return Comparison(same_number(number, other), "number")
    quantity, given_quantity = quantity_of(gold), quantity_of(given)
    if quantity.unit or given_quantity.unit:
        shares = [number or read_number(quantity.figure), other or read_number(given_quantity.figure)]
        # A percentage counts nothing.
        alike = len({share is not None and share.percent for share in shares}) == 1
        same = alike and same_quantity(quantity, given_quantity, partial(equal, depth=depth + 1))
        # Letters that nothing marks as a unit may be the reference's variables.
        if same or quantity.unit or "\\text" in given or given_quantity.unit == "degree":
            return Comparison(same, "quantity")
    compared = constant_apart if gold.endswith("+C") and _CONSTANT.search(given) else equal_trees
    if _CONSTANT.search(gold) and _CONSTANT.search(given):
        gold, given = (_CONSTANT.sub("+C", text) for text in (gold, given))
    try:
        return Comparison(compared(read(gold), read(given)), "expression")
    except Unparsable:
        if not (_CALCULUS.search(gold) or _CALCULUS.search(given)):
            return Comparison(False, "calculus")
    # Imported where it is needed: nearly all answers are decided without the tenths of a second that sympy takes.
    from .calculus import equal_expressions

    return Comparison(equal_expressions(gold, given), "calculus")
