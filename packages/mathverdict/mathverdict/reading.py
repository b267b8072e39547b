"""How a text is read: as what kind of answer, and in which form it is compared.

Invariant: this explains and decides nothing; the verdict is `equality`'s.
"""

from typing import NamedTuple

from .choices import reference_choice, same_choices
from .equality import MAX_EXPRESSION_CHARS
from .expressions import read
from .normalize import normalize, without_lead
from .notations import date_of, notation_of
from .numbers import read_number
from .progressions import progression_of
from .quantities import quantity_of
from .realsets import real_set
from .relations import relation_of
from .structure import structure_of
from .tree import Unparsable
from .words import as_words, meaning

_STRUCTURES = {"()": "tuple", "[]": "list", "{}": "set", "list": "list", "matrix": "matrix", "union": "union"}


class Reading(NamedTuple):
    """What a text is taken for, such as "number", and its form, such as "1/2"."""

    kind: str
    form: str


def reading(text: str) -> Reading:
    """How `text` is read when it stands alone; a comparison may read it as the other side is written."""
    text = meaning(without_lead(text))
    if date_of(text):
        return Reading("date", text)
    if same_choices(text, text):
        return Reading("choices", text)
    if choice := reference_choice(text):
        return Reading("choice", f"{choice.letter} {choice.text}".strip())
    if progression_of(text):
        return Reading("progression", text)
    if (words := as_words(text)) is not None:
        return Reading("words", words)
    form = normalize(text)
    if not form or len(form) > MAX_EXPRESSION_CHARS:
        return Reading("text", form)
    return _formula(form)


def _formula(form: str) -> Reading:
    if notation := notation_of(form):
        return Reading(notation.kind, " : ".join(notation.parts))
    if relation := relation_of(form):
        return Reading("equation" if relation.is_equation else "relation", form)
    if (structure := structure_of(form)) and structure.kind in _STRUCTURES:
        return Reading(_STRUCTURES[structure.kind], form)
    if real_set(form):
        return Reading("set of reals", form)
    if number := read_number(form):
        return Reading("number", f"{number.value}" + (" percent" if number.percent else ""))
    quantity = quantity_of(form)
    if quantity.unit:
        return Reading("quantity", f"{quantity.figure} [{quantity.unit}]")
    try:
        read(form)
    except Unparsable:
        return Reading("formula", form)
    return Reading("expression", form)
