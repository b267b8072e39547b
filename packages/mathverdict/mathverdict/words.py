r"""Answers in words: "no", `\text{Monday}`, "no solution", "an odd function" for "odd"; numbers in words: "two thirds".

Invariant: words are compared as words. As mathematics "no" would be n·o, and therefore equal to "on". A word is left
out only where it says no more than what the problem is about: the noun behind one adjective, the subject before it. A
list keeps its order, except for two things that "and" joins. "seven or eight", "one of them", "second" are words.
"""

import re

_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|textrm|textsf|mbox|emph|underline)\s*\{([^{}]*)\}")
_SHORT_WORDS = frozenset({"no", "if", "up", "on", "in", "so", "ok", "is", "it", "he", "we", "us", "go"})
_FUNCTION_NAMES = (
    "sin cos tan cot sec csc log exp sqrt cbrt arcsin arccos arctan asin acos atan sinh cosh tanh alpha beta gamma "
    "delta theta lambda phi omega inf and mod gcd lcm min max det cup cap cdot frac"
)
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split(" "))
_WORDS = re.compile(r"[^\W\d_][\w\s'’.,:!?&/-]*")  # noqa: RUF001
_PUNCTUATION = re.compile(r"[^\w\s-]")
_ARTICLES = re.compile(
    r"^(?:(?:it|this|that|the answer)\s+(?:is|was|will be|falls on)\s+|it's\s+)?(?:(?:on )?(?:the|an?)\s+)?"
)
_TAKES_BACK = re.compile(
    r"\b(?:not|wrong|incorrect|false|instead|actually|rather|maybe|perhaps|possibly|but|never|no|except|unless|"
    r"isn|doesn|mistake|correction|wait|sorry|guess|unsure|ignore|scratch)\b",
    re.IGNORECASE,
)
_THING = (
    r"(?:(?:positive|negative|real|prime|natural|rational|integer|whole) )*"
    r"(?:integers?|numbers?|values?|pairs?|triples?|primes?|functions?|polynomials?|triangles?|sets?|points?|matrix|matrices|sequences?|graphs?|tuples?|x|n|k)"
)
_OF_A_SERIES = (
    r"(?:(?:(?:the|this) (?:given )?(?:infinite )?(?:series|integral|improper integral|sequence|sum|product)|it) )?"
)
_CLOCK = re.compile(r"\b(\d{1,2}) o ?['\u2019]? ?clock")
_PERSON = r"(?:it|they|there|he|she|we|you|[-\d][\d,.]*|(?:the|this|that|these|both|all)(?: [a-z]+)?)"
_UNSURE = r"\b(?:but|wait|actually|maybe|perhaps|unless|except|if|although|however|or|sorry)\b"
_DENIED = rf"(?:\b(?:not|never|cannot|none|false|wrong|incorrect)\b|n['\u2019]t\b|{_UNSURE})"
_EXCEPT = re.compile(
    r"(?:the |set of |all )*(?:real(?: numbers)?|reals)(?: [a-z])? (?:(?:except|other than|excluding|but)(?: for)? "
    r"(?:[a-z] ?= ?)?|(?:with|where|such that) [a-z] ?(?:\\neq?|≠))(?P<points>[-\d/\\{}a-z±, ]*\d[-\d/\\{}a-z, ]*)"
)
_MEANINGS = {
    r"\emptyset": r"(?:there (?:is|are) |(?:the )?(?:\w+ )?has |it has )?no (?:real |such |possible |valid )?"
    r"(?:solutions?|roots?)(?: exists?)?"
    rf"|(?:there (?:is|are|exists?) )?(?:no such {_THING}|no {_THING}(?= exists?))(?: exists?)?"
    r"|(?:there (?:is|are) )?none|none(?: of them)? exists?|(?:the )?(?:empty|null) set",
    r"\text{cannot be determined}": r"(?:(?:it|this|that|the (?:answer|value|area|length|result))(?: of [a-z])? )?"
    r"(?:cannot|can not|can't|could not) be (?:determined|found)"
    r"(?: (?:from|with) (?:the )?(?:given )?(?:information|data)(?: given)?)?"
    r"|(?:there is )?(?:not enough|insufficient) (?:information|data)(?: (?:is )?given)?",
    r"\text{yes}": rf"yes[,.:;]? (?!.*(?:{_DENIED}|\bno\b)){_PERSON} .*",
    r"\text{no}": rf"no[,.:;]? (?!.*(?:\byes\b|{_UNSURE})){_PERSON} (?:.*{_DENIED}.*|diverges|fails\b.*)",
    "12:00 pm": r"(?:12(?::00)? )?noon",
    "12:00 am": r"(?:12(?::00)? )?midnight",
    r"\mathbb{R}": r"(?:(?:the )?set of )?(?:all )?(?:the )?real numbers|all (?:the )?reals",
    r"\infty": r"(?:(?:the )?limit (?:is|tends to|goes to|diverges to) )?(?:positive |plus )?infinity",
    r"-\infty": r"(?:negative |minus )infinity",
    r"\text{does not exist}": r"(?:the )?(?:limit |value |it )?(?:dne|does not exist|doesn't exist)",
    r"\text{am}": r"a\.? ?m",
    r"\text{pm}": r"p\.? ?m",
    r"\text{divergent}": rf"{_OF_A_SERIES}(?:diverges|(?:is )?divergent|does not converge)",
    r"\text{convergent}": rf"{_OF_A_SERIES}(?:converges|(?:is )?convergent|does not diverge)",
    r"\text{infinitely many}": r"(?:there (?:is|are) |it has |has )?(?:an )?infinitely many"
    r"(?: (?:solutions?|real solutions?))?|infinite(?: number of)? solutions?",
}
_PHRASES = [(re.compile(phrases), name) for name, phrases in _MEANINGS.items()]
_NOUNS = (
    "function sequence series triangle number integer event matrix graph quadrilateral polynomial equation relation "
    "angle variable vector set operator map curve distribution test polygon"
)
_NOUN = rf"(?:{'|'.join(_NOUNS.split(' '))}|matrices|vertices)(?:s|es)?"
_ADJECTIVE = r"[a-z]+(?:ly [a-z]+)?"
_WITH_NOUN = re.compile(rf"(?P<word>{_ADJECTIVE}) (?P<noun>{_NOUN})")
_WITH_SUBJECT = re.compile(
    rf"(?:the |this |these |that )?(?:given )?(?P<noun>{_NOUN}|it|they|f|f x)(?: [a-z])? (?:is|are) "
    rf"(?:an? )?(?P<word>{_ADJECTIVE})"
)
_WINNER = re.compile(r"(?P<word>[a-z]+) (?:wins|won|will win|is the winner|has a winning strategy)")
_NO_ADJECTIVE = frozenset({"not", "no", "neither", "never", "any", "all", "every", "some", "the", "a", "an", "one"})
_VERDICTS = frozenset({"yes", "no", "true", "false", "first", "second"})
"""Of these a list says each of something else."""
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {name: value for value, name in enumerate(_ONES.split(" "))}
_VALUES |= {name: 10 * value for value, name in enumerate(_TENS.split(" "), 2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7}
_PARTS |= {"eighth": 8, "ninth": 9, "tenth": 10}
_NUMBER_WORD = rf"(?:{'|'.join([*_VALUES, *_SCALES])})"
_NUMBER = re.compile(
    rf"(?:(?:minus|negative)\s+)?{_NUMBER_WORD}(?:(?:\s+and\s+|[\s-]+){_NUMBER_WORD})*(?![\w-])", re.IGNORECASE
)
_FRACTION = re.compile(rf"(?P<top>{_NUMBER_WORD})[\s-]+(?P<bottom>{'|'.join(_PARTS)})s?", re.IGNORECASE)
_BEFORE_NOUN = re.compile(r"\s+[A-Za-z]{3,}(?:[ ./-][A-Za-z]+){0,2}")
_ITEM = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*", re.IGNORECASE)


def bare_words(text: str) -> str:
    """`text` without what marks words as such, in single spaces."""
    while (shorter := _TEXT.sub(r"\1", text)) != text:
        text = shorter
    return " ".join(text.replace("$", " ").replace("\\ ", " ").replace("~", " ").split())


def takes_back(text: str) -> bool:
    """Whether a text doubts or denies something."""
    return _TAKES_BACK.search(text) is not None


def meaning(text: str) -> str:
    r"""`text`, or the object that it names in words: `\emptyset` for "no solution", 2 for "two"."""
    bare = bare_words(text).casefold().rstrip(".! ")
    if len(bare) > 60:
        return text
    if found := _EXCEPT.fullmatch(bare):
        points = re.sub(r"(?:\\pm|±) ?(\S+)", r"\1, -\1", re.sub(" and | or ", ", ", found["points"]))
        return rf"\mathbb{{R}}\setminus\{{{points}\}}"
    if _CLOCK.search(bare):
        return _CLOCK.sub(r"\1:00", bare)
    figures = in_figures(bare)
    return next((name for phrase, name in _PHRASES if phrase.fullmatch(bare)), text if figures == bare else figures)


def as_words(text: str) -> str | None:
    """The text in comparable form if it is words, `None` if it may be mathematics."""
    bare = bare_words(text)
    if not _WORDS.fullmatch(bare) or "?" in bare:
        return None
    runs = re.findall(r"[^\W\d_]+", bare)
    marked = r"\text" in text and len(max(runs, key=len)) > 1
    words = [run for run in map(str.casefold, runs) if run in _SHORT_WORDS or (len(run) > 2 and run not in _FUNCTIONS)]
    if not marked and not words:
        return None
    return _ARTICLES.sub("", " ".join(_PUNCTUATION.sub(" ", bare.casefold()).replace("-", " ").split()))


def same_words(reference: str, answer: str) -> bool | None:
    """Whether two texts say the same in words; `None` if the reference is not in words."""
    wanted, found = as_words(reference), as_words(answer)
    if wanted is None:
        return None
    if wanted == found:
        return True
    if found is None:
        return False
    (word, noun), (other, other_noun) = _described(wanted), _described(found)
    alike = word == other and word not in _NO_ADJECTIVE and (not noun or not other_noun or noun == other_noun)
    return alike or _same_items(reference, answer)


def _described(words: str) -> tuple[str, str]:
    for pattern in (_WITH_SUBJECT, _WITH_NOUN):
        if (found := pattern.fullmatch(words)) and found["word"] not in _NO_ADJECTIVE:
            return found["word"], "" if found["noun"] in {"it", "they", "f", "f x"} else found["noun"]
    return (found["word"] if (found := _WINNER.fullmatch(words)) else words), ""


def _same_items(reference: str, answer: str) -> bool:
    wanted, found = _items(reference), _items(answer)
    if len(wanted) < 2 or len(wanted) != len(found):
        return False
    together = (
        len(wanted) == 2
        and not _VERDICTS & set(wanted)
        and all(re.search(r"\band\b", bare_words(text)) for text in (reference, answer))
    )
    return wanted == found or (together and wanted == found[::-1])


def _items(text: str) -> list[str]:
    bare = bare_words(text).casefold().strip(" .")
    items = [" ".join(re.sub(r"[^\w\s-]", " ", item).split()) for item in _ITEM.split(bare)]
    return [re.sub(r"^(?:the|an?) ", "", item) for item in items if item]


def in_figures(words: str) -> str:
    """`words` with the number that they are, or start with, in figures; as they are if there is none."""
    words = words.strip()
    if (found := _FRACTION.fullmatch(words)) and (top := _value(found["top"])) is not None:
        part = found["bottom"].casefold()
        return rf"\frac{{{top}}}{{{_PARTS.get(part) or _PARTS[part.removesuffix('s')]}}}"
    number = _NUMBER.match(words)
    value = _value(number[0]) if number else None
    rest = words[number.end() :] if number else ""
    return words if value is None or (rest and not _BEFORE_NOUN.fullmatch(rest)) else f"{value}{rest}"


def _value(words: str) -> int | None:
    first, *others = words.casefold().replace("-", " ").split()
    negative = first in {"minus", "negative"}
    total, group, last = 0, 0, 10**12
    for part in filter("and".__ne__, others if negative else (first, *others)):
        value, scale = _VALUES.get(part, 0), _SCALES.get(part, 0)
        room = 100 if group % 100 == 0 else 10 if group % 10 == 0 and group % 100 >= 20 else 0
        if scale == 100 and 0 < group < 100:
            group *= 100
        elif scale > 100 and group > 0 and scale < last:
            total, group, last = total + group * scale, 0, scale
        elif not scale and (not group or 0 < value < room):
            group += value
        else:
            return None
    return -(total + group) if negative else total + group
