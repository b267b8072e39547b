"""Lone surrogates: JSON can escape one half of a pair, and no file, command line or request can hold that text."""


def has_lone_surrogate(text: str) -> bool:
    """Whether a text holds a lone surrogate."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)
