r"""Plain numbers, read exactly: decimals, scientific notation, percents, fractions, mixed numbers, recurring decimals.

Invariant: a value is an exact `Fraction` of bounded size; nothing is rounded. Equality of two values allows only for
the digits that a decimal left out.
"""

import re
from fractions import Fraction
from typing import NamedTuple

MAX_DIGITS = 400
TOLERANCE = Fraction(1, 10**6)
_GROUPED = r"\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d{1,3}(?:_\d{3})+"
_UNSIGNED = rf"(?:(?:{_GROUPED}|\d+)(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(rf"[+-]?\s*{_UNSIGNED}", re.ASCII)
_SCIENTIFIC = re.compile(
    rf"(?P<mantissa>[+-]?\s*{_UNSIGNED})?\s*(?:[eE](?P<e>[+-]?\d{{1,4}})"
    r"|(?:\\cdot\s*|(?<![\d.])|\bx\s*)10\s*\^\s*(?:\{\s*(?P<b>[+-]?\d{1,4})\s*\}|(?P<p>[+-]?\d{1,4})))",
    re.ASCII,
)
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>\d+)\s*)?\\frac\s*(?:\{\s*(?P<top>[+-]?[\d,.]+)\s*\}|(?P<t>\d))\s*"
    r"(?:\{\s*(?P<bottom>[+-]?[\d,.]+)\s*\}|(?P<b>\d))",
    re.ASCII,
)
_SLASH = re.compile(
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>\d+)\s+)?(?P<top>[\d,.]+)\s*/\s*(?P<bottom>[+-]?[\d,.]+)", re.ASCII
)
_RECURRING = re.compile(r"(?P<fixed>[+-]?\d+\.(?P<places>\d*))\\overline\s*\{?(?P<period>\d+)\}?", re.ASCII)
_PERCENT = re.compile(r"\s*(?:\\?%|\\text\{\s*percent\s*\}|percent)\s*$", re.IGNORECASE)


class Plain(NamedTuple):
    value: Fraction
    rounded: bool
    """Written with a decimal point or an exponent, so it may stand for a longer number."""
    percent: bool = False


def read_number(text: str) -> Plain | None:
    """The number that the spelled `text` is, or `None` if it is anything else or has over 400 digits."""
    if len(text) > 2 * MAX_DIGITS:
        return None
    stripped = _PERCENT.sub("", text)
    percent = stripped != text
    number = _unsuffixed(_without_parentheses(stripped.strip()))
    return None if number is None else Plain(number.value, number.rounded, percent)


def _without_parentheses(text: str) -> str:
    while len(text) > 2 and (text[0], text[-1]) in {("(", ")"), ("{", "}")} and not set(text[1:-1]) & set("(){},"):
        text = text[1:-1].strip()
    return text


def _unsuffixed(text: str) -> Plain | None:
    if _DECIMAL.fullmatch(text):
        return Plain(_decimal(text), "." in text.rstrip("."))
    if found := _SCIENTIFIC.fullmatch(text):
        exponent = int(found["e"] or found["b"] or found["p"])
        mantissa = _decimal(found["mantissa"]) if found["mantissa"] else Fraction(1)
        if abs(exponent) > MAX_DIGITS or (found["e"] and not found["mantissa"]):
            return None
        return Plain(mantissa * Fraction(10) ** exponent, True)
    if found := _FRACTION.fullmatch(text) or _SLASH.fullmatch(text):
        return _ratio(found.groupdict())
    if found := _RECURRING.fullmatch(text):
        tail = Fraction(int(found["period"]), (10 ** len(found["period"]) - 1) * 10 ** len(found["places"]))
        return Plain(_decimal(found["fixed"]) + (-tail if text.startswith("-") else tail), False)
    return None


def _decimal(text: str) -> Fraction:
    return Fraction(re.sub(r"[\s,_]", "", text).removesuffix("."))


def _ratio(groups: dict[str, str | None]) -> Plain | None:
    texts = groups["top"] or groups.get("t") or "", groups["bottom"] or groups.get("b") or ""
    if not all(map(_DECIMAL.fullmatch, texts)) or (bottom := _decimal(texts[1])) == 0:
        return None
    value = _decimal(texts[0]) / bottom
    if groups["whole"] and not 0 <= value < 1:
        return None
    value += int(groups["whole"] or 0)
    return Plain(-value if groups["sign"] == "-" else value, False)


def same_number(left: Plain, right: Plain) -> bool:
    """Whether an answer (`right`) is the number `left`; a percent equals its fraction, and its bare figure if the
    reference is a percentage."""
    rounded = left.rounded or right.rounded
    shares = [number.value / 100 if number.percent else number.value for number in (left, right)]
    if close(shares[0], shares[1], rounded):
        return True
    return (left.percent or not right.percent) and close(left.value, right.value, rounded)


def close(left: Fraction, right: Fraction, rounded: bool) -> bool:
    """Exact equality, or within the tolerance when a decimal is involved."""
    if not rounded:
        return left == right
    return abs(left - right) <= TOLERANCE * min(Fraction(1), max(abs(left), abs(right)))
