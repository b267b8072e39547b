r"""Whole numbers in equal steps: `x \equiv 3 \pmod 7`, `x=7k+3, k\in\mathbb{Z}`, "all odd positive integers".

Invariant: a text is such a set only if it says of which numbers its letter is one; `2k+1` alone is an expression.
"""

import re
from dataclasses import dataclass

from .words import bare_words

_LONGEST = 120
_SPACE = re.compile(r"\\(?:quad|qquad|[,;:!])|\s+")
_NAME = r"(?:[a-z]\s*=\s*)"
_RESIDUE = re.compile(
    r"(?:all\s+)?(?:(?:the\s+)?integers\s+)?(?:(?P<name>[a-z])\s*(?:with|such that|where)?\s*)?(?:(?P=name)\s*)?"
    r"(?:\\equiv|≡|congruent to)\s*(?P<rest>-?\d{1,9})\s*"
    r"(?:\\pmod\s*\{?|\(?\s*\\?b?(?:mod(?:ulo)?)\s*\{?)\s*(?P<step>\d{1,9})\s*\}?\s*\)?"
)
_LINEAR = re.compile(
    rf"{_NAME}?(?:(?P<step>\d{{1,9}})\s*(?:\\cdot\s*)?(?P<letter>[a-z])(?:\s*(?P<sign>[+-])\s*(?P<rest>\d{{1,9}}))?"
    r"|(?P<first>\d{1,9})\s*(?P<turned>[+-])\s*(?P<by>\d{1,9})\s*(?:\\cdot\s*)?(?P<other>[a-z]))(?P<said>[\s,;:(].*)"
)
_FILLING = re.compile(
    r"\b(?:where|with|for|some|any|all|every|each|an|a|arbitrary|is|being|and|the|or)\b|[$,;:().\s]"
    r"|\\(?:text|ldots|dots|cdots)"
)
_DOMAINS = {
    "integers": r"@inZ|@integers?|integers?@|@\\inZ",
    "from 0": r"@inZ_?\{?>=0\}?|non-?negativeintegers?@|@non-?negativeintegers?"
    r"|@=012\d*|(?:integers?|@inZ|@integer)?@>=0|wholenumbers?@",
    "from 1": r"@inZ(?:\^|_\{?)\{?(?:\+|>0|>=1)\}?|positiveintegers?@|@positiveintegers?"
    r"|(?:integers?|@inZ|@integer)?@(?:>=1|>0)|@=123\d*",
}
_WORDS = re.compile(
    r"(?:all\s+|every\s+|the\s+|set of\s+|any\s+)*(?P<sign>positive\s+|non-?negative\s+)?(?:(?P<parity>odd|even)\s+)?"
    r"(?P<second>positive\s+|non-?negative\s+)?(?:(?:integers?|(?P<loose>numbers?))(?:\s+[a-z])?"
    r"(?:\s+(?:that are\s+|which are\s+)?(?:divisible by|multiples of)\s+(?P<divisor>\d{1,9}))?"
    r"|(?:integer\s+)?multiples?\s+of\s+(?P<multiple>\d{1,9}))"
)


@dataclass(frozen=True)
class Progression:
    """All whole numbers of one residue, from `first` on if there is a first."""

    step: int
    rest: int
    first: int | None
    congruence: bool = False
    """Written as one."""


def same_progression(gold: str, given: str) -> bool | None:
    """Whether two texts are the same numbers; `None` if one of them is not a progression, or both are congruences."""
    if max(len(gold), len(given)) > _LONGEST:
        return None
    wanted, found = progression_of(gold), progression_of(given)
    if wanted is None or found is None or (wanted.congruence and found.congruence):
        return None
    return (wanted.step, wanted.rest, wanted.first) == (found.step, found.rest, found.first)


def progression_of(text: str) -> Progression | None:
    """The progression that a text is, if it is one."""
    bare = _SPACE.sub(" ", bare_words(text)).strip(" .")
    if found := _RESIDUE.fullmatch(bare):
        return _progression(int(found["step"]), int(found["rest"]), None, congruence=True)
    if found := _LINEAR.fullmatch(bare):
        return _of_linear(found)
    if found := _WORDS.fullmatch(bare.casefold()):
        return _of_words(found)
    return None


def _progression(step: int, rest: int, first: int | None, congruence: bool = False) -> Progression | None:
    return Progression(step, rest % step, first, congruence) if step > 1 else None


def _of_linear(found: "re.Match[str]") -> Progression | None:
    letter = found["letter"] or found["other"]
    said = re.sub(r"\\geq?(?![a-z])|≥|\\geqslant", ">=", re.sub(r"\\in(?![a-z])|∈", "in", found["said"]))
    said = re.sub(r"\\mathbb\s*\{?\s*Z\s*\}?|\u2124", "Z", _FILLING.sub("", said)).replace(" ", "")
    step = int(found["step"] or found["by"])
    rest = int(found["rest"] or 0) if found["step"] else int(found["first"])
    rest = -rest if found["sign"] == "-" else rest
    for name, pattern in _DOMAINS.items():
        if re.fullmatch(pattern.replace("@", letter), said):
            if name == "integers":
                return _progression(step, rest, None)
            return None if found["turned"] == "-" else _progression(step, rest, rest + step * int(name.split(" ")[1]))
    return None


def _of_words(found: "re.Match[str]") -> Progression | None:
    if (found["parity"] and (found["divisor"] or found["multiple"])) or (found["sign"] and found["second"]):
        return None
    step = int(found["divisor"] or found["multiple"] or (2 if found["parity"] else 0))
    rest = 1 if found["parity"] == "odd" else 0
    sign = (found["sign"] or found["second"] or "").strip()
    if not sign:
        return _progression(step, rest, None)
    return _progression(step, rest, rest if rest or sign != "positive" else step)
