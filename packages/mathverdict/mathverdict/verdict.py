"""The verdict on one answer: right or not, why, and whether its final answers conflict.

Invariant: whatever the answer holds, the result is a verdict; only a reference that states nothing raises.
"""

import re
from dataclasses import dataclass
from typing import Literal

from .equality import equal
from .finals import Finals, finals_of_file, finals_of_reply, has_box, reference_value

Source = Literal["reply", "file", "any"]
"""A reply, whose answer is boxed; a file, which may be the bare answer; or "any": a reply if anything is boxed."""
_SPACES = re.compile(r"[^\S\n]+")
_EMPTY_LINES = re.compile(r"(?: ?\n){3,}")


class EmptyReference(ValueError):
    """The task's reference answer states nothing."""


@dataclass(frozen=True)
class Verdict:
    """What the rules found; JSON-safe."""

    right: bool
    reason: str
    """"equal", "different", "conflicting", "incomparable" (the comparison failed on it) or why there is no answer."""
    answer: str = ""
    """The final answer that was compared."""
    conflicting: bool = False
    """Several different final answers were given."""


def verify_text(reference: str, text: str, source: Source = "any") -> Verdict:
    """The verdict on the answer in `text`, a model's reply or the content of an answer file; `EmptyReference` if the
    reference states nothing."""
    value = reference_value(reference)
    if not value:
        raise EmptyReference("the reference answer is empty")
    finals = _finals(text, source)
    if not finals.answers:
        return Verdict(False, finals.reason)
    try:
        return _compare_finals(value, finals)
    # Hostile or odd input makes math-verify and sympy raise nearly anything; the answer is the policy's.
    except Exception as error:  # noqa: BLE001
        return Verdict(False, f"incomparable: {type(error).__name__}", finals.answers[-1])


def stated_answer(text: str, source: Source) -> str:
    """The one final answer in `text`, not compared with anything; empty if there is none or more than one."""
    finals = _finals(text, source)
    return finals.joined or (finals.answers[0] if len(finals.answers) == 1 else "")


def _finals(text: str, source: Source) -> Finals:
    text = _EMPTY_LINES.sub("\n\n", _SPACES.sub(" ", text))
    boxed = source == "reply" or (source == "any" and has_box(text))
    return finals_of_reply(text) if boxed else finals_of_file(text)


def _compare_finals(value: str, finals: Finals) -> Verdict:
    if finals.joined and equal(value, finals.joined):
        return Verdict(True, "equal", finals.joined)
    last = finals.answers[-1]
    fits = [equal(value, answer) for answer in finals.answers]
    if all(fits):
        return Verdict(True, "equal", last)
    for reading in finals.stated:
        if equal(value, reading):
            return Verdict(True, "equal", reading)
    if any(fits) or not all(equal(last, answer) for answer in finals.answers[:-1]):
        return Verdict(False, "conflicting", finals.joined or last, conflicting=not finals.joined)
    return Verdict(False, "different", finals.joined or last)
