"""Numbers in words: "two", "twenty-one", "three hundred and five", "two thirds".

Invariant: only a text that is one number, or starts with one that a noun follows, is read; "seven or eight", "one of
them" and "second" are not numbers.
"""

import re

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
_WORD = rf"(?:{'|'.join([*_VALUES, *_SCALES])})"
_NUMBER = re.compile(rf"(?:(?:minus|negative)\s+)?{_WORD}(?:(?:\s+and\s+|[\s-]+){_WORD})*(?![\w-])", re.IGNORECASE)
_FRACTION = re.compile(rf"(?P<top>{_WORD})[\s-]+(?P<bottom>{'|'.join(_PARTS)})s?", re.IGNORECASE)
_BEFORE_NOUN = re.compile(r"\s+[A-Za-z]{3,}(?:[ ./-][A-Za-z]+){0,2}")


def in_figures(words: str) -> str:
    """`words` with the number that they are, or start with, in figures; as they are if there is none."""
    words = words.strip()
    if found := _FRACTION.fullmatch(words):
        top, part = _value(found["top"]), found["bottom"].casefold()
        if top is None:
            return words
        return rf"\frac{{{top}}}{{{_PARTS[part if part in _PARTS else part.removesuffix('s')]}}}"
    number = _NUMBER.match(words)
    value = _value(number[0]) if number else None
    if number is None or value is None:
        return words
    rest = words[number.end() :]
    return f"{value}{rest}" if not rest or _BEFORE_NOUN.fullmatch(rest) else words


def _value(words: str) -> int | None:
    """The value of number words; `None` if they are not one number, such as "two three"."""
    parts = words.casefold().replace("-", " ").split()
    sign = -1 if parts[0] in {"minus", "negative"} else 1
    total, group, last = 0, 0, 10**12
    for part in parts:
        if part in {"and", "minus", "negative"}:
            continue
        if part in _SCALES:
            scale = _SCALES[part]
            if group == 0 or (scale > 100 and scale >= last) or (scale == 100 and group > 99):
                return None
            if scale == 100:
                group *= 100
            else:
                total, group, last = total + group * scale, 0, scale
            continue
        value = _VALUES[part]
        room = 100 if group % 100 == 0 else 10 if group % 10 == 0 and group % 100 >= 20 else 0
        if group and not 0 < value < room:
            return None
        group += value
    return sign * (total + group)
