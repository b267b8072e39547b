r"""Directions on a map: `53^\circ` north of east, N 37° E, with the size of what points there before them.

Invariant: two directions are the same only if they are the same angle from north; a size before one has to be before
the other as well.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from .words import bare_words

_LONGEST = 120
_ANGLE = r"(?P<{}>\d{{1,3}}(?:\.\d{{1,9}})?)\s*(?:\^\s*\{{?\s*\\circ\s*\}}?|\u00b0|degrees?)"
_POINT = r"(?P<{}>north|south|east|west|N|S|E|W)"
_BEARING = re.compile(
    rf"(?P<size>.*?)\s*(?:(?:,|;|\bat\b|\bin (?:the|a) direction(?: of)?\b|\bdirected\b)\s*)*(?:an angle of\s+)?"
    rf"(?:{_ANGLE.format('angle')}\s*{_POINT.format('to')}\s*(?:of)\s*(?:due\s+)?{_POINT.format('base')}"
    rf"|{_POINT.format('from')}\s*{_ANGLE.format('by')}\s*{_POINT.format('toward')})",
    re.DOTALL,
)
_AZIMUTH = {"n": 0, "e": 90, "s": 180, "w": 270}


def same_bearing(gold: str, given: str, equal: Callable[[str, str], bool]) -> bool | None:
    """Whether two texts say the same size and direction; `None` unless both say a direction."""
    wanted, found = _bearing(gold), _bearing(given)
    if wanted is None or found is None:
        return None
    if wanted[1] != found[1] or bool(wanted[0]) != bool(found[0]):
        return False
    return not wanted[0] or equal(wanted[0], found[0])


def _bearing(text: str) -> tuple[str, Fraction] | None:
    """The size, and the angle from north."""
    if len(text) > _LONGEST:
        return None
    bare = re.sub(r"\\[,;:!]", " ", bare_words(text)).strip(" .")
    found = _BEARING.fullmatch(bare)
    if found is None:
        return None
    base, to = (name[0].casefold() for name in (found["base"] or found["from"], found["to"] or found["toward"]))
    turn = (_AZIMUTH[to] - _AZIMUTH[base]) % 360
    angle = Fraction(found["angle"] or found["by"])
    if turn not in {90, 270} or angle > 90:
        return None
    return found["size"].strip(), (_AZIMUTH[base] + (angle if turn == 90 else -angle)) % 360
