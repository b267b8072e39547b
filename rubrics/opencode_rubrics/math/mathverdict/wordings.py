r"""Equality of answers in words: "an odd function" for "odd", "January, April, July" with or without an "and".

Invariant: a word is left out only where it says no more than what the problem is about: the noun behind one adjective,
the subject before it. A list keeps its order, except for two things that "and" joins.
"""

import re

from .words import as_words, bare_words

_NOUNS = (
    "function sequence series triangle number integer event matrix graph quadrilateral polynomial equation relation "
    "angle variable vector set operator map curve distribution test polygon"
)
_NOUN = rf"(?:{'|'.join(_NOUNS.split(' '))}|matrices|vertices)(?:s|es)?"
_ADJECTIVE = r"[a-z]+(?:ly [a-z]+)?"
_WITH_NOUN = re.compile(rf"(?P<word>{_ADJECTIVE}) (?P<noun>{_NOUN})")
_WITH_SUBJECT = re.compile(
    rf"(?:the |this |these |that )?(?:given )?(?P<noun>{_NOUN}|it|they|f|f x)(?: [a-z])? (?:is|are) "
    rf"(?:an? )?(?P<word>{_ADJECTIVE})"
)
_NO_ADJECTIVE = frozenset({"not", "no", "neither", "never", "any", "all", "every", "some", "the", "a", "an", "one"})
_VERDICTS = frozenset({"yes", "no", "true", "false", "first", "second"})
"""Of these a list says each of something else."""
_ITEM = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*", re.IGNORECASE)


def same_words(reference: str, answer: str) -> bool | None:
    """Whether two texts say the same in words; `None` if the reference is none."""
    wanted, found = as_words(reference), as_words(answer)
    if wanted is None:
        return None
    if wanted == found:
        return True
    if found is None:
        return False
    return _same_description(wanted, found) or _same_items(reference, answer)


def _same_description(wanted: str, found: str) -> bool:
    (word, noun), (other, other_noun) = _described(wanted), _described(found)
    return word == other and word not in _NO_ADJECTIVE and (not noun or not other_noun or noun == other_noun)


def _described(words: str) -> tuple[str, str]:
    """The adjective that a text is, and the noun that it describes."""
    for pattern in (_WITH_SUBJECT, _WITH_NOUN):
        if (found := pattern.fullmatch(words)) and found["word"] not in _NO_ADJECTIVE:
            return found["word"], "" if found["noun"] in {"it", "they", "f", "f x"} else found["noun"]
    return words, ""


def _same_items(reference: str, answer: str) -> bool:
    wanted, found = _items(reference), _items(answer)
    if len(wanted) < 2 or len(wanted) != len(found):
        return False
    together = (
        len(wanted) == 2
        and not _VERDICTS & set(wanted)
        and all(re.search(r"\band\b", bare_words(text)) for text in (reference, answer))
    )
    return wanted == found or (together and wanted == found[::-1])


def _items(text: str) -> list[str]:
    bare = bare_words(text).casefold().strip(" .")
    items = [" ".join(re.sub(r"[^\w\s-]", " ", item).split()) for item in _ITEM.split(bare)]
    return [re.sub(r"^(?:the|an?) ", "", item) for item in items if item]
