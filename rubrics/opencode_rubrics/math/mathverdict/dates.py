"""Dates and other numerals in groups: `2024-02-29`, "July 4", "February 29, 2024", `12/25/2024`.

Invariant: what is written so is no difference and no quotient of numbers. Two dates are the same only if they name the
same parts; a date whose day and month cannot be told apart equals itself only.
"""

import re

from .words import bare_words

_LONGEST = 40
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
            if not (1 <= month <= 12 and 1 <= day <= 31):
                return (bare,)
            if order and day <= 12 and month != day:
                return (f"{month}/{day}", found["year"])
            return str(month), str(day), found["year"]
    return (bare,) if _GROUPS.fullmatch(bare) else None
