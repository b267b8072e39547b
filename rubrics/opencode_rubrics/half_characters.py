"""Halves of characters: JSON can escape one alone, and then no file, command line or request can hold the text."""


def has_half_character(text: str) -> bool:
    """Whether a text holds a lone surrogate."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)
