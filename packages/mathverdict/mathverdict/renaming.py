r"""Letters that an answer may choose: `2n\pi` for `2k\pi`, `f(x)=kx` for `f(x)=cx`, `k \in \mathbb{Z}` behind either.

Invariant: a letter is chosen freely only where its place shows it: what a text says is any integer or constant, the
count of periods, the parameter of `n=2^k`, the factor of `f(x)=cx`, the constants of `y=Ce^x`. All others are the
problem's. No letter takes the place of one that the text has already.
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
_PERIOD = re.compile(
    rf"[+-]\s*(?:\d+\s*|\\frac\s*\{{\d*)?(?:(?P<a>{_WHOLE})\s*(?:\\pi|\\cdot\s*\d*\s*\\pi)"
    rf"|\\pi\s*(?P<b>{_WHOLE})(?![A-Za-z])"
    rf"|(?:\\cdot\s*)?(?:360|180|90)\s*(?:\^\s*\{{?\s*\\circ\s*\}}?)?\s*(?:\\cdot\s*)?(?P<c>{_WHOLE})(?![A-Za-z]))"
    rf"|(?:(?P<d>{_WHOLE})|(?P<e>{_WHOLE})\s*\\cdot\s*)(?:360|180|90)\s*\^\s*\{{?\s*\\circ"
)
_OF_FUNCTION = re.compile(r"^\s*(?:[fghFG]\s*\(\s*(?P<of>[a-z])\s*\))\s*=(?P<value>[^=]+)$")
_OF_INTEGER = re.compile(r"^\s*[nm]\s*=(?P<value>[^=]+)$")
_OF_EQUATION = re.compile(
    r"^\s*(?:y|x|[fyxuPN]\s*\(\s*[xt]\s*\))\s*=(?P<value>.*(?:\^|\\(?:sin|cos|ln|exp|sinh|cosh)(?![A-Za-z])).*)$"
)
_DEFINED = re.compile(r"^(?P<name>[A-Za-z])\s*(?:\(\s*(?P<of>[a-z])\s*\)\s*)?=(?!=)\s*")
_INDEX = re.compile(r"\\(?:sum|prod)\s*_\s*\{\s*(?P<index>[a-z])\s*=")
_DIFFERENTIAL = re.compile(r"\\int(?![A-Za-z]).*?(?<![A-Za-z\\])d\s*(?P<index>[a-z])(?![A-Za-z])")
_CONSTANTS = frozenset("cCkK")
_ANY_CONSTANT = re.compile(r"[A-DKakc]|[Cc]_\{?\d\}?")
_INDEXED = re.compile(r"[Cc]_\{?\d\}?")
_FAMILY = re.compile(
    r"\$?\s*\\(?:left\\)?\{(?P<value>(?:[^{}|:]|\{[^{}]*\})+?)(?:\\(?:mid|colon|vert)(?![A-Za-z])|[:|])"
    r"(?P<said>\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*Z\s*\}?)\s*\\(?:right\\)?\}\s*\$?"
)


def with_letters_of(gold: str, given: str) -> tuple[str, str]:
    """Both texts without what they say of their own letters, and the answer with the reference's letters."""
    gold_text = gold
    (gold, gold_domain, wanted), (given, given_domain, found) = _said(gold), _said(given)
    if gold_domain and given_domain and gold_domain != given_domain:
        return gold, f"{given} \\in {given_domain}"
    if gold_domain and not given_domain and not _periods(gold):
        return gold_text, given
    for choose in (_periods, _parameters, _factors):
        wanted, found = wanted or choose(gold), found or choose(given)
    free, others = _symbols(gold), _symbols(given)
    if len(wanted) == len(found) == 1 and wanted != found:
        renaming = dict(zip(sorted(found), sorted(wanted), strict=True))
        if not (found & free or wanted & others):
            return gold, _renamed(given, renaming)
    return gold, given


def constants_renamed(gold: str, given: str) -> list[str]:
    """The answer to a differential equation with the reference's constants, in each order."""
    left, right = _OF_EQUATION.match(gold), _OF_EQUATION.match(given)
    if left is None or right is None:
        return []
    wanted = sorted(name for name in _symbols(left["value"]) if name == "C" or _INDEXED.fullmatch(name))
    found = sorted(_symbols(right["value"]) - _symbols(gold) | (_symbols(right["value"]) & set(wanted)))
    if not wanted or len(wanted) != len(found) or len(wanted) > 3 or wanted == found:
        return []
    if not all(_ANY_CONSTANT.fullmatch(name) for name in found):
        return []
    return [_renamed(given, dict(zip(found, order, strict=True))) for order in permutations(wanted)]


def named_alike(gold: str, given: str) -> str:
    """The answer with the reference's name of the function that it gives: `y` for `y(x)`, `f(x)` for `y` or `f(t)`."""
    left, right = _DEFINED.match(gold), _DEFINED.match(given)
    if left is None or right is None or left[0] == right[0]:
        return given
    if left["name"] == right["name"] and right["of"] and (left["of"] or right["of"]) not in _symbols(given):
        return _renamed(given, {right["of"]: left["of"]})
    of = left["of"] or right["of"]
    alike = left["name"] == right["name"] or {left["name"], right["name"]} == {"f", "y"}
    if not alike or right["of"] not in {None, of} or of == left["name"]:
        return given
    return left[0] + given[right.end() :]


def bound_renamed(gold: str, given: str) -> str:
    r"""The answer with the reference's letter for the index of its one sum, product or limit, or of its integral."""
    for pattern in (_INDEX, _DIFFERENTIAL):
        wanted = {found["index"] for found in pattern.finditer(gold)}
        found = {match["index"] for match in pattern.finditer(given)}
        if not len(wanted) == len(found) == 1 or wanted == found:
            continue
        if not (found & _symbols(gold) or wanted & _symbols(given)):
            given = _renamed(given, dict(zip(found, wanted, strict=True)))
    return given


def _said(text: str) -> tuple[str, str, frozenset[str]]:
    if len(text) > 400:
        return text, "", frozenset()
    text = _FAMILY.sub(r"\g<value>, \g<said>", text) if _FAMILY.fullmatch(text) else text
    for name, pattern in _SAID:
        found = pattern.search(text)
        if found and found.start() > 0:
            letter = found["letter"] or found["named"]
            rest = text[: found.start()].strip()
            if letter in _symbols(rest):
                return rest + "$" * (rest.count("$") % 2), name, frozenset({letter})
    return text, "", frozenset()


def _symbols(text: str) -> frozenset[str]:
    return frozenset(_SYMBOL.findall(_COMMAND.sub(" ", text)))


def _periods(text: str) -> frozenset[str]:
    found = {next(name for name in match.groups() if name) for match in _PERIOD.finditer(text)}
    return frozenset(found) if len(found) == 1 else frozenset()


def _parameters(text: str) -> frozenset[str]:
    found = _OF_INTEGER.match(text)
    names = {name for name in _symbols(found["value"]) if re.fullmatch("[klmnjrst]", name)} if found else set()
    return frozenset(names) if found and len(names) == 1 and names == _symbols(found["value"]) else frozenset()


def _factors(text: str) -> frozenset[str]:
    found = _OF_FUNCTION.match(text)
    names = _symbols(found["value"]) - {found["of"]} if found else frozenset()
    return frozenset(names) if len(names) == 1 and names <= _CONSTANTS else frozenset()


def _renamed(text: str, renaming: dict[str, str]) -> str:
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, renaming))})(?!_)")
    parts = re.split(r"(\\[A-Za-z]+)", text)
    return "".join(
        part if index % 2 else pattern.sub(lambda found: renaming[found[0]], part) for index, part in enumerate(parts)
    )
