"""Searching a text for many words at once: most texts hold none of them, and that is found fast.

Looking for sixty words one by one takes longer than writing the page does. Of each word three bytes are chosen; a table
says of any three bytes of a text whether they may be such ones, and only there a word is looked for.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

SHORT = 1000
"""Bytes below which each word is looked for by itself."""
BLOCK = 1 << 20
_FACTOR, _SHIFT = np.uint32(2654435761), np.uint32(15)
_THREE = np.uint32(0xFFFFFF)


class Words:
    """ASCII words of at least three characters."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = {word: word.encode() for word in sorted(words)}
        self._places: defaultdict[bytes, list[tuple[str, int]]] = defaultdict(list)
        self._table = np.zeros(1 << 17, dtype=bool)
        for word, spelled in self._words.items():
            at = max(range(len(spelled) - 2), key=lambda at: sum(not chr(c).islower() for c in spelled[at : at + 3]))
            three = spelled[at : at + 3]
            self._places[three].append((word, at))
            self._table[_hashed(np.frombuffer(three + b"\0", "<u4"))] = True

    def found_in(self, text: bytes) -> set[str]:
        """Those of the words that stand in a text."""
        if len(text) < SHORT:
            return {word for word, spelled in self._words.items() if spelled in text}
        found: set[str] = set()
        for begin in range(0, len(text), BLOCK):
            block = text[begin : begin + BLOCK + 2] + b"\0\0\0\0"
            for shift in range(4):
                fours = np.frombuffer(block, "<u4", count=(len(block) - shift) // 4, offset=shift)
                for number in np.flatnonzero(self._table[_hashed(fours)]).tolist():
                    at = begin + shift + 4 * number
                    for word, before in self._places.get(text[at : at + 3], ()):
                        if word not in found and text.startswith(self._words[word], at - before) and at >= before:
                            found.add(word)
        return found


def _hashed(fours: np.ndarray) -> np.ndarray:
    """Of the first three bytes of each four."""
    return ((fours & _THREE) * _FACTOR) >> _SHIFT
