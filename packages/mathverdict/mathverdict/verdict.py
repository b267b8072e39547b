"""The verdict on one answer: right or not, why, and whether its final answers conflict.

Invariant: whatever the answer holds, the result is a verdict; only a reference that states nothing raises.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from .equality import equal
from .finals import Finals, finals_of_file, finals_of_reply, has_box, reference_value
from .normalize import unescaped
from .questions import alternatives, is_unrounded, readings, reference_choice

Source = Literal["reply", "file", "any"]
"""A reply, whose answer is boxed; a file, which may be the bare answer; or "any": a reply if anything is boxed."""
_MAX_RIVALS = 40
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
    conflicting: bool = False


def verify_text(
    reference: str, text: str, source: Source = "any", *, question: str = "", unrounded: bool = False
) -> Verdict:
    """The verdict on the answer in `text`, a model's reply or the content of an answer file; `EmptyReference` if the
    reference states nothing. `question` tells units, order, options; `unrounded` takes what rounds to a reference."""
    value = reference_value(reference)
    if not value:
        raise EmptyReference("the reference answer is empty")
    finals = _finals(text, source, question)
    if not finals.answers:
        return Verdict(False, finals.reason)
    try:
        finals = replace(finals, answers=_of_one_kind(value, finals.answers))
        return _compare_finals(partial(_is_right, value, question=question, unrounded=unrounded), finals)
    # Hostile or odd input makes math-verify and sympy raise nearly anything; the answer is the policy's.
    except Exception as error:  # noqa: BLE001
        return Verdict(False, f"incomparable: {type(error).__name__}", finals.answers[-1])


def stated_answer(text: str, source: Source) -> str:
    """The one final answer in `text`, not compared with anything; empty if there is none or more than one."""
    finals = _finals(text, source)
    return finals.joined or (finals.answers[0] if len(finals.answers) == 1 else "")


def _finals(text: str, source: Source, question: str = "") -> Finals:
    text = unescaped(_EMPTY_LINES.sub("\n\n", _SPACES.sub(" ", text)))
    boxed = source == "reply" or (source == "any" and has_box(text))
    return finals_of_reply(text, question) if boxed else finals_of_file(text, question)


def _of_one_kind(value: str, answers: tuple[str, ...]) -> tuple[str, ...]:
    """Of a choice's letter and its value beside each other, `400` and `(A)`, those that are what the reference is."""
    letters = [(choice := reference_choice(text)) is not None and not choice.text for text in (value, *answers)]
    return tuple(answer for answer, letter in zip(answers, letters[1:], strict=True) if letter == letters[0]) or answers


def _is_right(value: str, answer: str, question: str, unrounded: bool) -> bool:
    if any(equal(*pair) for pair in readings(value, answer, question)):
        return True
    first, *others = alternatives(value)
    if others and all(equal(first, other) for other in others):
        return any(equal(part, answer) for part in (first, *others))
    return unrounded and is_unrounded(value, answer)


def _compare_finals(right: Callable[[str], bool], finals: Finals) -> Verdict:
    if finals.joined and right(finals.joined):
        return Verdict(True, "equal", finals.joined)
    answers, last = finals.answers, finals.answers[-1]
    if len(answers) > _MAX_RIVALS:
        return Verdict(False, "conflicting", last, conflicting=True)
    fits = [right(answer) for answer in answers]
    if all(fits):
        return Verdict(True, "equal", last)
    if reading := next(filter(right, finals.stated), ""):
        return Verdict(True, "equal", reading)
    if any(fits) or not all(equal(last, answer) for answer in answers[:-1]):
        return Verdict(False, "conflicting", finals.joined or last, conflicting=not finals.joined)
    return Verdict(False, "different", finals.joined or last)
