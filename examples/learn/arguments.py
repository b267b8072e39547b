"""Types of the commands' options."""

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number from `least` on."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return read
