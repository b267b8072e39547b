"""The values that options take; a wrong one is refused with a sentence by argparse."""

import argparse
import math


def finite(text: str) -> float:
    """A finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def share(text: str) -> float:
    """A number between 0 and 1, both excluded."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie between 0 and 1")
    return value


def whole(text: str) -> int:
    """A whole number from 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def positive(text: str) -> int:
    """A whole number from 1 to 1000."""
    value = int(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie between 1 and 1000")
    return value


def group(text: str) -> int:
    """The size of a group."""
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError("a group needs at least 2 attempts")
    return value


def ks(text: str) -> list[int]:
    """Several k, in order."""
    return sorted({positive(part) for part in text.split(",")})


def prior(text: str) -> tuple[float, float]:
    """The two parts of a Beta prior."""
    a, b = (float(part) for part in text.split(","))
    if not (0 < a < math.inf and 0 < b < math.inf):
        raise argparse.ArgumentTypeError("both parts of the prior must be positive")
    return a, b


def pair(text: str) -> tuple[str, str]:
    """OPTION=COLUMN."""
    option, equals, column = text.partition("=")
    if not equals or not column:
        raise argparse.ArgumentTypeError(f"{text!r} is not OPTION=COLUMN")
    return option.replace("-", "_"), column
