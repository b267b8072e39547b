"""Decides whether a mathematical answer is right: reads the answer out of a text and compares it with a reference.

Invariant: pure functions; imports the standard library, math-verify with its parts and nothing else, and only by
relative imports among its own modules, so that the same files run from an archive, too.
"""

from .errors import EmptyReference
from .verdict import Verdict, equal, stated_answer, verify_text

__all__ = ["EmptyReference", "Verdict", "equal", "stated_answer", "verify_text"]
