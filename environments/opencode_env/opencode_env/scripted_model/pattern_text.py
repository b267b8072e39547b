"""Texts that a regular expression matches, made from a seeded source."""

import random
import re
import string
from re import _constants as codes  # type: ignore[attr-defined]  # where Python 3.11 and later keep their parser
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_MOST_REPEATS = 3
_CATEGORIES = {
    codes.CATEGORY_DIGIT: string.digits,
    codes.CATEGORY_WORD: string.ascii_letters + string.digits + "_",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_DIGIT: string.ascii_letters,
    codes.CATEGORY_NOT_WORD: " -",
    codes.CATEGORY_NOT_SPACE: string.ascii_letters,
}
_ALL = string.ascii_letters + string.digits + " _-.,:;/"


def text_of(pattern: str, source: random.Random) -> str:
    """A text in which the pattern is found; an empty one where Python cannot read it."""
    try:
        return "".join(_part(code, value, source) for code, value in _parser.parse(pattern))
    except (re.error, NotImplementedError):
        return ""


def _part(code: Any, value: Any, source: random.Random) -> str:
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.NOT_LITERAL:
        return source.choice(_ALL.replace(chr(value), ""))
    if code is codes.ANY:
        return source.choice(string.ascii_letters)
    if code is codes.IN:
        return source.choice(_one_of(value))
    if code is codes.BRANCH:
        return _joined(source.choice(value[1]), source)
    if code is codes.SUBPATTERN:
        return _joined(value[-1], source)
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        least, most, inner = value
        count = source.randint(least, min(most, least + _MOST_REPEATS))
        return "".join(_joined(inner, source) for _ in range(count))
    if code is codes.AT:
        return ""
    raise NotImplementedError(str(code))


def _joined(parts: Any, source: random.Random) -> str:
    return "".join(_part(code, value, source) for code, value in parts)


def _one_of(choices: Any) -> str:
    found, inverted = "", False
    for code, value in choices:
        if code is codes.NEGATE:
            inverted = True
        elif code is codes.LITERAL:
            found += chr(value)
        elif code is codes.RANGE:
            found += "".join(map(chr, range(value[0], min(value[1], value[0] + 100) + 1)))
        elif code is codes.CATEGORY:
            found += _CATEGORIES.get(value, "")
    return "".join(one for one in _ALL if one not in found) if inverted else found
