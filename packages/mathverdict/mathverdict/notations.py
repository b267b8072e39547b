r"""Answers with a notation of their own: dates, times of day, ratios, numerals in a base, residues, whole numbers in
equal steps: "all odd positive integers"; multiple choice; and letters that an answer may choose: `2n\pi`.

Invariant: what stands in the notation is compared in it: "3:2" is not a time, "12:30" and "2024-02-29" are neither
quotient nor difference. A date whose day and month cannot be told apart equals only itself. An answer names a choice
only if it names no other and takes nothing back. A letter is chosen freely only where its place shows it.
"""

import re
from collections.abc import Callable
from itertools import permutations
from math import gcd
from typing import NamedTuple

from .words import bare_words

_WORD = r"(?:\\text\{\s*)?"
_TIME = re.compile(
    rf"(?P<hour>\d{{1,2}})(?:\s*\{{?:\}}?\s*(?P<minute>\d\d))?(?:\s*{_WORD}\s*(?P<half>[aApP])\s*\.?\s*[mM]\s*\.?\s*\}}?)?",
    re.ASCII,
)
_TEXT_DIGITS = re.compile(
    r"\\text\{\s*(?P<text>[0-9A-Za-z]+)\s*\}(?=\s*_)"
    r"|\(\s*(?:\\text\{)?(?P<group>[0-9A-Za-z]+)\}?\s*\)(?=\s*_\s*\{?\d)|^(?P<hex>[0-9a-f]+)(?=\s*_\s*\{?\s*16)"
)
_BASE = re.compile(
    rf"(?P<digits>[0-9A-Z]+)\s*_\s*(?:(?P<one>\d)|\{{\s*{_WORD}\s*(?P<base>\d+|[a-z]+)\s*\}}?\s*\}})"
    rf"|(?P<numeral>[0-9A-Z]+)\s*{_WORD}\s*\(?\s*(?:in )?base\s+(?P<named>\d+|[a-z]+)\)?\s*\}}?"
)
_NUMERALS = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_BASES = {name: str(value) for value, name in enumerate(_NUMERALS.split(" "), 2)}
_TO = re.compile(r"(\d+)\s*(?:\\text\{\s*to\s*\}|to)\s*(\d+)", re.ASCII)
_CONGRUENT = re.compile(r"^(?:[A-Za-z](?:[_^]\{?\w+\}?|\([^()]*\))?)?\s*\\equiv\s*")
_MODULUS = r"(?P<{}>[^()=<>]+)"
_RESIDUE = re.compile(
    r"(?P<left>.+?)\s*,?\s*(?:\\pmod\s*(?:\{(?P<a>[^{}]+)\}|(?P<b>\w))"
    rf"|\(\s*(?:\\(?:b|p)?mod|{_WORD}\s*mod\s*\}}?)\s*{_MODULUS.format('c')}\)"
    rf"|\\(?:bmod|mod)\s*{_MODULUS.format('d')}|{_WORD}\s*mod\s*\}}?\s*{_MODULUS.format('e')})"
)
_MONTHS = "january february march april may june july august september october november december"
_NUMBER_OF = {name[:3]: number for number, name in enumerate(_MONTHS.split(" "), 1)}
_MONTH = rf"(?P<month>{'|'.join(rf'{name[:3]}(?:{name[3:]})?' for name in _MONTHS.split(' '))})\.?"
_DAY = r"(?:the\s+)?(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>\d{4})"
_NAMED = (
    re.compile(rf"{_MONTH}\s+{_DAY}(?:\s*,?\s*{_YEAR})?", re.IGNORECASE),
    re.compile(rf"{_DAY}\s+(?:of\s+)?{_MONTH}(?:\s*,?\s*{_YEAR})?", re.IGNORECASE),
)
_NUMERIC = (
    re.compile(rf"{_YEAR}(?P<sep>[-/.])(?P<month>\d{{1,2}})(?P=sep)(?P<day>\d{{1,2}})", re.ASCII),
    re.compile(rf"(?P<month>\d{{1,2}})(?P<sep>[-/.])(?P<day>\d{{1,2}})(?P=sep){_YEAR}", re.ASCII),
)
_GROUPS = re.compile(r"\d+(?:-\d+){2,}|0\d+-\d+|\d+-0\d+|\d{3}-\d{4}", re.ASCII)
Equal = Callable[[str, str], bool]
_LONGEST = 120
_NAME = r"(?:[a-z]\s*=\s*)"
_CONGRUENCE = re.compile(
    r"(?:all\s+)?(?:(?:the\s+)?integers\s+)?(?:(?P<name>[a-z])\s*(?:with|such that|where)?\s*)?(?:(?P=name)\s*)?"
    r"(?:\\equiv|≡|congruent to)\s*(?P<rest>-?\d{1,9})\s*"
    r"(?:\\pmod\s*\{?|\(?\s*\\?b?(?:mod(?:ulo)?)\s*\{?)\s*(?P<step>\d{1,9})\s*\}?\s*\)?"
)
_LINEAR = re.compile(
    rf"{_NAME}?(?:(?P<step>\d{{1,9}})\s*(?:\\cdot\s*)?(?P<letter>[a-z])(?:\s*(?P<sign>[+-])\s*(?P<rest>\d{{1,9}}))?"
    r"|(?P<first>\d{1,9})\s*(?P<turned>[+-])\s*(?P<by>\d{1,9})\s*(?:\\cdot\s*)?(?P<other>[a-z]))"
)
_WORDS = re.compile(
    r"(?:all\s+|every\s+|the\s+|set of\s+|any\s+)*(?P<sign>positive\s+|non-?negative\s+)?(?:(?P<parity>odd|even)"
    r"\s+(?P<second>positive\s+|non-?negative\s+)?(?:integers?|numbers?)(?:\s+[a-z])?|(?:(?:integers?|numbers?)"
    r"(?:\s+[a-z])?\s+(?:that are\s+|which are\s+)?(?:divisible by|multiples of)|(?:integer\s+)?multiples?\s+of)"
    r"\s+(?P<step>\d{1,9}))"
)
_FIRST = {"Z": None, "N": 1, "N0": 0}
_LETTER_DOMAINS = {
    "Z": r"\\mathbb\s*\{?\s*Z\s*\}?|(?:(?:any|all|an|some|arbitrary)\s+)*integers?",
    "N": r"\\mathbb\s*\{?\s*Z\s*\}?\s*(?:[\^_]\s*\{?\s*(?:\+|>\s*0)\s*\}?)|positive\s+integers?",
    "N0": r"\\mathbb\s*\{?\s*Z\s*\}?\s*_\s*\{?\s*\\geq?\s*0\s*\}?|non-?negative\s+integers?",
    "naturals": r"\\mathbb\s*\{?\s*N\s*\}?|natural\s+numbers?",
    "R": r"\\mathbb\s*\{?\s*R\s*\}?"
    r"|(?:(?:any|all|a|an|some|arbitrary|real)\s+)*(?:constants?|real\s+numbers?|reals?)",
}
_BOUNDS = {"N": r"(?:\\geq?|≥|>=)\s*1|>\s*0", "N0": r"(?:\\geq?|≥|>=)\s*0"}
_HAS_DOMAIN = re.compile(r"mathbb|integer|natural|constant|real|\\ge|[>≥]", re.IGNORECASE)
_LETTER = r"\$?(?P<letter>[A-Za-z](?:_\{?\d\}?)?)\$?"
_SAID = tuple(
    (
        name,
        re.compile(
            rf"[\s$]*[,;(]?\s*(?:\\(?:text|quad|qquad|[ ,;:!])\s*)*\{{?\s*,?\s*"
            rf"(?:(?:where|with|for|for some|for any|for all|for every)\s*)?\}}?\s*"
            rf"(?:{_LETTER}\s*(?:\\in|∈|\\text\s*\{{\s*is\s*|is|being)\s*(?:an?\s+|any\s+|some\s+)*(?:{domain})"
            rf"|(?:for|with)\s+(?:(?:an?|any|some|all|every"
            rf"|arbitrary)\s+)*(?:{domain})[\s}}]+{_LETTER.replace('letter', 'named')}"
            rf"|(?:integers?\s+)?{_LETTER.replace('letter', 'bound')}\s*(?:{_BOUNDS.get(name, '(?!)')}))\s*[\s}})$.]*$",
            re.IGNORECASE,
        ),
    )
    for name, domain in _LETTER_DOMAINS.items()
)
_SYMBOL = re.compile(r"[A-Za-z](?:_\{?\d\}?)?")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WHOLE = "[knmlj]"
_CHOSEN = (
    re.compile(
        rf"[+-]\s*(?:\d+\s*|\\frac\s*\{{\d*)?(?:({_WHOLE})\s*(?:\\pi|\\cdot\s*\d*\s*\\pi)|\\pi\s*({_WHOLE})(?![A-Za-z])"
        rf"|(?:\\cdot\s*)?(?:360|180|90)\s*(?:\^\s*\{{?\s*\\circ\s*\}}?)?\s*(?:\\cdot\s*)?({_WHOLE})(?![A-Za-z]))"
        rf"|(?:({_WHOLE})|({_WHOLE})\s*\\cdot\s*)(?:360|180|90)\s*\^\s*\{{?\s*\\circ"
    ),
    re.compile(r"\\(?:sum|prod)\s*_\s*\{\s*([a-z])\s*="),
    re.compile(r"\\int(?![A-Za-z]).*?(?<![A-Za-z\\])d\s*([a-z])(?![A-Za-z])"),
    re.compile(r"^[A-Za-z]\s*\(\s*([a-z])\s*\)\s*="),
)
_CONSTANTS = (
    (re.compile(r"[nm]\s*="), "[klmnjrst]", "[klmnjrst]"),
    (re.compile(r"[fghFG]\s*\(\s*[a-z]\s*\)\s*="), "[cCkK]", "[cCkK]"),
    (
        re.compile(
            r"(?:y|x|[fyxuPN]\s*\(\s*[xt]\s*\))\s*=.*(?:\^|\\(?:sin|cos|ln|exp|sinh|cosh)(?![A-Za-z]))", re.DOTALL
        ),
        r"C|[Cc]_\{?\d\}?",
        r"[A-DKakc]|[Cc]_\{?\d\}?",
    ),
)
"""What a text begins with that may have constants, and their names in a reference and in an answer."""
_DEFINED = re.compile(r"^(?P<name>[A-Za-z])\s*(?:\(\s*(?P<of>[a-z])\s*\)\s*)?=(?!=)\s*")
_FAMILY = re.compile(
    r"\$?\s*\\(?:left\\)?\{(?P<value>(?:[^{}|:]|\{[^{}]*\})+?)(?:\\(?:mid|colon|vert)(?![A-Za-z])|[:|])"
    r"(?P<said>\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*Z\s*\}?)\s*\\(?:right\\)?\}\s*\$?"
)
_LONGEST_SAID = 400
_MOST = 3
_LONE_LETTER = re.compile(
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


class Notation(NamedTuple):
    """`kind` is "time", "ratio", "base" or "residue"; the parts are text."""

    kind: str
    parts: tuple[str, ...]


def notation_of(text: str) -> Notation | None:
    if (found := _TIME.fullmatch(text)) and (found["minute"] or found["half"]) and int(found["hour"]) < 25:
        half = (found["half"] or "").lower()
        if int(found["minute"] or 0) < 60:
            return Notation("time", (str(int(found["hour"])), found["minute"] or "00", half))
    if found := _BASE.fullmatch(_TEXT_DIGITS.sub(lambda digits: digits[digits.lastgroup or 0].upper(), text)):
        base = found["one"] or found["base"] or found["named"]
        base = _BASES.get(base, base)
        if base.isdigit():
            return Notation("base", ((found["digits"] or found["numeral"]).lstrip("0"), base))
    if found := _TO.fullmatch(text):
        return Notation("ratio", (found[1], found[2]))
    parts = re.split(r"\s*\{?:\}?\s*", text)
    if len(parts) > 1 and all(re.fullmatch(r"[\w.\\{}^+*/()-]+(?: [\w.\\{}^+*/()-]+)*", part) for part in parts):
        return Notation("ratio", tuple(parts))
    if found := _RESIDUE.fullmatch(text):
        modulus = next(found[group] for group in "abcde" if found[group])
        return Notation("residue", (_CONGRUENT.sub("", found["left"]).strip(), modulus.strip()))
    return None


def same_notation(gold: str, given: str, equal: Equal) -> bool | None:
    """Whether two texts agree in the notation that one of them has; `None` if neither has one."""
    form, other = notation_of(gold), notation_of(given)
    if form is None and other is None:
        return None
    if form and other and (form.kind, other.kind) == ("ratio", "time") and not other.parts[2]:
        # "30:45" for "2:3": what the reference does not write as a time of day is not one in the answer.
        other = Notation("ratio", other.parts[:2])
    if form and other:
        if form.kind != other.kind:
            return False
        if form.kind == "base":
            return form.parts == other.parts
        return _SAME[form.kind](form.parts, other.parts, equal)
    if form:
        if form.kind == "base":
            return given.strip("{} ").lstrip("0") == form.parts[0]
        # A ratio in lowest terms is a quotient; "75:20" is minutes and seconds, or a score.
        whole = all(re.fullmatch(r"\d{1,30}", part) for part in form.parts)
        if form.kind != "ratio" or len(form.parts) != 2 or (whole and gcd(*map(int, form.parts)) != 1):
            return False
        return equal(f"({form.parts[0]})/({form.parts[1]})", given)
    return _added(gold, other, equal) if other else None


def _added(gold: str, other: Notation, equal: Equal) -> bool:
    if other.kind == "ratio" and len(other.parts) == 2:
        return equal(gold, f"({other.parts[0]})/({other.parts[1]})")
    # Of a residue the answer may add the modulus, if it is reduced.
    whole = other.kind == "residue" and all(re.fullmatch(r"[0-9]{1,30}", part) for part in other.parts)
    return whole and int(other.parts[0]) < int(other.parts[1]) and gold.lstrip("0") == other.parts[0].lstrip("0")


def _same_time(left: tuple[str, ...], right: tuple[str, ...], _: Equal) -> bool:
    if left[2] == right[2] or left[1] != right[1] or (left[2] and right[2]):
        return left == right
    plain, told = (left, right) if right[2] else (right, left)
    if 0 < int(plain[0]) < 13:
        return plain is left and plain[0] == told[0]
    return int(plain[0]) == int(told[0]) % 12 + (12 if told[2] == "p" else 0)


def _same_ratio(left: tuple[str, ...], right: tuple[str, ...], equal: Equal) -> bool:
    pairs = zip(left[1:], right[1:], strict=False)
    return len(left) == len(right) and all(
        equal(f"({a})\\cdot({right[0]})", f"({b})\\cdot({left[0]})") for a, b in pairs
    )


def _same_residue(left: tuple[str, ...], right: tuple[str, ...], equal: Equal) -> bool:
    if not equal(left[1], right[1]):
        return False
    whole = all(re.fullmatch(r"-?\d{1,30}", text) for text in (left[0], right[0], left[1])) and int(left[1]) != 0
    return equal(left[0], right[0]) or (whole and (int(left[0]) - int(right[0])) % int(left[1]) == 0)


_SAME = {"time": _same_time, "ratio": _same_ratio, "residue": _same_residue}


def same_date(gold: str, given: str) -> bool | None:
    """Whether two texts are the same date, of which the answer may add the year; `None` if neither is a date."""
    wanted, found = date_of(gold), date_of(given)
    if wanted is None and found is None:
        return None
    if wanted is None or found is None:
        return False
    return wanted == found or (len(wanted) == len(found) == 3 and not wanted[2] and wanted[:2] == found[:2])


def date_of(text: str) -> tuple[str, ...] | None:
    """Month, day and year (empty if it is left out) of a date; the text itself of other numerals in groups."""
    bare = bare_words(text).strip(".,; ")
    if len(bare) > _LONGEST:
        return None
    for pattern in _NAMED:
        if found := pattern.fullmatch(bare):
            return str(_NUMBER_OF[found["month"][:3].casefold()]), str(int(found["day"])), found["year"] or ""
    for order, pattern in enumerate(_NUMERIC):
        if found := pattern.fullmatch(bare):
            month, day = int(found["month"]), int(found["day"])
            if order and month > 12:
                month, day = day, month
            if order and day <= 12 and month != day:
                return (f"{month}/{day}", found["year"])
            return str(month), str(day), found["year"]
    return (bare,) if _GROUPS.fullmatch(bare) else None


class Progression(NamedTuple):
    """All whole numbers of one residue, from `first` on if there is a first."""

    step: int
    rest: int
    first: int | None


def same_progression(gold: str, given: str) -> bool | None:
    """Whether two texts are the same numbers; `None` if one of them is not a progression."""
    if max(len(gold), len(given)) > _LONGEST:
        return None
    wanted, found = progression_of(gold), progression_of(given)
    return wanted == found if wanted and found else None


def progression_of(text: str) -> Progression | None:
    bare = bare_words(text).strip(" .")
    if found := _CONGRUENCE.fullmatch(bare):
        return _progression(int(found["step"]), int(found["rest"]), None)
    shorter, domain, _ = _said(bare) if _LINEAR.match(bare) else (bare, "", None)
    if domain in _FIRST and (found := _LINEAR.fullmatch(shorter)):
        step = int(found["step"] or found["by"])
        rest = int(found["rest"] or 0) if found["step"] else int(found["first"])
        rest, first = -rest if found["sign"] == "-" else rest, _FIRST[domain]
        if first is not None and found["turned"] == "-":
            return None
        return _progression(step, rest, None if first is None else rest + step * first)
    if found := _WORDS.fullmatch(bare.casefold()):
        step, rest = int(found["step"] or 2), int(found["parity"] == "odd")
        sign = (found["sign"] or found["second"] or "").strip()
        return _progression(step, rest, (step if sign == "positive" and not rest else rest) if sign else None)
    return None


def _progression(step: int, rest: int, first: int | None) -> Progression | None:
    return Progression(step, rest % step, first) if step > 1 else None


def without_domains(gold: str, given: str) -> tuple[str, str, frozenset[str]]:
    """Return both texts without what they say of their own letters, and the letters of which they say it."""
    (shorter, gold_domain, wanted), (other, given_domain, found) = _said(gold), _said(given)
    if gold_domain and given_domain and gold_domain != given_domain:
        return shorter, f"{other} \\in {given_domain}", frozenset()
    if gold_domain and not given_domain and not _CHOSEN[0].search(gold):
        return gold, other, frozenset()
    return shorter, other, wanted | found


def renamed(gold: str, given: str, free: frozenset[str]) -> list[str]:
    """The answer with the reference's letters in place of its own, in each order; as it is if it may not choose."""
    given = _named_alike(gold, given)
    wanted, found = (
        sorted(_symbols(_DEFINED.sub("", text)) - _symbols(other)) for text, other in ((gold, given), (given, gold))
    )
    if not 0 < len(wanted) == len(found) <= _MOST:
        return [given]
    if not (free | _free(gold, 0)).issuperset(wanted) or not (free | _free(given, 1)).issuperset(found):
        return [given]
    return [_with_letters(given, dict(zip(found, order, strict=True))) for order in permutations(wanted)]


def _free(text: str, side: int) -> frozenset[str]:
    chosen = {name for pattern in _CHOSEN for match in pattern.finditer(text) for name in match.groups() if name}
    for head, *names in _CONSTANTS:
        if head.match(text):
            chosen.update(name for name in _symbols(text) if re.fullmatch(names[side], name))
    return frozenset(chosen)


def _named_alike(gold: str, given: str) -> str:
    """Name the function that it gives: `y` for `y(x)`, `f(x)` for `y`."""
    left, right = _DEFINED.match(gold), _DEFINED.match(given)
    if left is None or right is None or left[0] == right[0]:
        return given
    of = left["of"] or right["of"]
    alike = left["name"] == right["name"] or {left["name"], right["name"]} == {"f", "y"}
    if not alike or right["of"] not in {None, of} or of == left["name"]:
        return given
    return left[0] + given[right.end() :]


def _said(text: str) -> tuple[str, str, frozenset[str]]:
    text = _FAMILY.sub(r"\g<value>, \g<said>", text) if _FAMILY.fullmatch(text) else text
    for name, pattern in _SAID if len(text) <= _LONGEST_SAID and _HAS_DOMAIN.search(text) else ():
        found = pattern.search(text)
        if found and found.start() > 0:
            letter = found["letter"] or found["named"] or found["bound"]
            rest = text[: found.start()].strip()
            if letter in _symbols(rest):
                return rest + "$" * (rest.count("$") % 2), name, frozenset({letter})
    return text, "", frozenset()


def _symbols(text: str) -> frozenset[str]:
    return frozenset(_SYMBOL.findall(_COMMAND.sub(" ", text)))


def _with_letters(text: str, renaming: dict[str, str]) -> str:
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, renaming))})(?!_)")
    parts = re.split(r"(\\[A-Za-z]+)", text)
    return "".join(
        part if index % 2 else pattern.sub(lambda found: renaming[found[0]], part) for index, part in enumerate(parts)
    )


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
    found = WITH_TEXT.fullmatch(bare)
    if found is None or (found["plain"] and "\\text" not in text):
        return None
    return Choice(found["round"] or found["plain"], found["text"])


def answered_choice(text: str) -> Choice | None:
    """The one choice that an answer names, alone or followed by the choice's text."""
    bare = bare_words(text)
    if found := _LONE_LETTER.fullmatch(bare):
        return Choice(found[1].upper())
    found = WITH_TEXT.fullmatch(bare)
    if found is None or _ANOTHER.search(found["text"]) or _RETRACTED.search(found["text"]):
        return None
    return Choice(found["round"] or found["plain"], found["text"])
