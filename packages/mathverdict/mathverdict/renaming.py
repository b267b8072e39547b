r"""Letters that an answer may choose: `2n\pi` for `2k\pi`, `f(x)=kx` for `f(x)=cx`, `k \in \mathbb{Z}` behind either.

Invariant: a letter is chosen freely only where its place shows it: what a text says is any integer or constant, the
count of periods, the parameter of `n=2^k`, the factor of `f(x)=cx`, the constants of `y=Ce^x`, the index of a sum, the
argument of a function. All others are the problem's. No letter takes the place of one that the text has already.
"""

import re
from itertools import permutations

_DOMAINS = {
    "Z": r"\\mathbb\s*\{?\s*Z\s*\}?|(?:(?:any|all|an|some|arbitrary)\s+)*integers?",
    "N": r"\\mathbb\s*\{?\s*N\s*\}?|\\mathbb\s*\{?\s*Z\s*\}?\s*(?:\^\s*\{?\+\}?|_\s*\{?>\s*0\}?)"
    r"|(?:positive\s+integers?|natural\s+numbers?)",
    "N0": r"\\mathbb\s*\{?\s*Z\s*\}?\s*_\s*\{?\s*\\geq?\s*0\s*\}?|non-?negative\s+integers?",
    "R": r"\\mathbb\s*\{?\s*R\s*\}?"
    r"|(?:(?:any|all|a|an|some|arbitrary|real)\s+)*(?:constants?|real\s+numbers?|reals?)",
}
_LETTER = r"\$?(?P<letter>[A-Za-z](?:_\{?\d\}?)?)\$?"
_SAID = tuple(
    (
        name,
        re.compile(
            rf"[\s$]*[,;(]?\s*(?:\\(?:text|quad|qquad|[ ,;:!])\s*)*\{{?\s*,?\s*"
            rf"(?:(?:where|with|for|for some|for any|for all|for every)\s*)?\}}?\s*"
            rf"(?:{_LETTER}\s*(?:\\in|∈|\\text\s*\{{\s*is\s*|is|being)\s*(?:an?\s+|any\s+|some\s+)*(?:{domain})"
            rf"|(?:for|with)\s+(?:(?:an?|any|some|all|every"
            rf"|arbitrary)\s+)*(?:{domain})[\s}}]+{_LETTER.replace('letter', 'named')})\s*[\s}})$.]*$",
            re.IGNORECASE,
        ),
    )
    for name, domain in _DOMAINS.items()
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
_LONGEST = 400
_MOST = 3


def without_domains(gold: str, given: str) -> tuple[str, str, frozenset[str]]:
    """Both texts without what they say of their own letters, and the letters of which they say it."""
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
    """The answer with the reference's name of the function that it gives: `y` for `y(x)`, `f(x)` for `y`."""
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
    for name, pattern in _SAID if len(text) <= _LONGEST else ():
        found = pattern.search(text)
        if found and found.start() > 0:
            letter = found["letter"] or found["named"]
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
