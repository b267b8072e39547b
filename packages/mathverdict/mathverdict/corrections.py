"""Explicit corrections: "Actually, the answer is 3." behind a box with 2.

Invariant: only a sentence that says that it corrects, and what is right instead, replaces an answer; numbers that
merely follow, checks and confirmations leave it as it is.
"""

import re

from .words import as_words, in_figures

_TRUE = r"(?:(?:correct|right|actual|true|proper|revised|corrected|updated|new)\s+)"
_NOUN = r"(?:answer|result|solution|value|number|count|total|sum|probability|area|length|ratio)"
_VERB = (
    r"\s*(?:is|was|are|should(?:\s+\w+)?\s+be|should\s+have\s+been|must\s+be|ought\s+to\s+be|would\s+be|becomes|=|:)+"
    r"(?:\s+(?:actually|in fact|really|instead|therefore|thus|then|now|just|simply|exactly))*\s*:?\s*"
)
_PLACE = r"(?:\s+(?:to|of|for)\s+(?:the|this)\s+\w+)?"
_MARK = re.compile(
    r"\b(?:actually|wait|hold on|sorry|oops|correction|on (?:second thoughts?|reflection)|in fact|apologi[sz]e|"
    r"apologies|scratch that|let me correct|i was wrong|mistaken?|error|miscounted|miscalculated|erratum|wrong"
    r"|incorrect)\b|^\W*no\b|\bno,",
    re.IGNORECASE,
)
_MARKS_OFF = re.compile(r"actually|wait|in fact|correction|no,|[,.;:\u2014-]", re.IGNORECASE)
"""What has to stand between the mark and the statement: "the wrong answer is 42" corrects nothing."""
_STATEMENT = re.compile(
    rf"\b(?:(?:the|my|our)\s+)?(?:final\s+)?(?P<true>{_TRUE})?(?:final\s+)?{_NOUN}{_PLACE}{_VERB}"
    rf"|\b(?P<pronoun>it|that|this|[a-z](?=\s*=))(?:(?P<should>\s*(?:should|must)\s+(?:\w+\s+)?(?:be"
    rf"|have\s+been)\s+)|{_VERB})|(?P<meant>\b(?:i|we)\s+meant\s+(?:to\s+(?:say|write)\s+)?|\bcorrection\s*:\s*)",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n")
_REST = re.compile(
    r"(?:[.!?;](?=\s|$)|,\s(?!\d)|\s(?:because|since|as|which|so|not|instead|rather|is|and not)\b|\s\().*$"
)
_VALUE = re.compile(r"[^\w\\]*+(?:\d|\\(?!text)|[A-Za-z](?![A-Za-z'])\s*(?:$|[-+*/^_=<>(,.$]))")
_TAKEN_BACK = re.compile(
    r"\b(?:(?:the|my|our|this|that)\s+(?:final\s+|above\s+|previous\s+|boxed\s+)*(?:answer|result"
    r"|value)(?:\s+above)?|that|it)\s+"
    r"(?:is|was)(?:\s+(?:actually|in fact))?\s+(?:wrong|incorrect|not\s+(?:correct|right))\b"
    r"|\bactually,?\s+(?:the\s+(?:final\s+)?answer|it)\s+(?:is\s+not|isn['\u2019]t)\b",
    re.IGNORECASE,
)
_AT_FIRST = re.compile(
    r"\b(?:at first|initially|originally|my (?:first|initial|original|earlier)|on (?:my|the) first|"
    r"first,? (?:i|we) (?:got|get|obtained|thought|found|had))\b[^.\n]*$",
    re.IGNORECASE,
)
_TURN = re.compile(
    r"\b(?:but|however|yet|corrected|correcting|rechecking|on checking|second|actually)\b", re.IGNORECASE
)
_FAULT = re.compile(
    r"\b(?:but|however|yet|oops|wait)\b[^.\n]{0,20}\b(?:i|we|that|this|it)\b[^.\n]{0,40}\b(?:forg[eo]t\w*|missed|misses|"
    r"misread|overlook\w*|wrong|incorrect|mistake\w*|error|double[- ]count\w*|(?:over|mis)(?:count|calculat)\w*|"
    r"not (?:right|correct)|(?:left|leaves?) out)\b",
    re.IGNORECASE,
)
_MOST = 4000


def correction(text: str, corrected: str) -> str:
    """The value that the last explicit correction in `text` gives in place of the answer `corrected`; else empty."""
    value, marked = "", False
    for sentence in _SENTENCES.split(text[-_MOST:]):
        mark = _MARK.search(sentence)
        for found in _STATEMENT.finditer(sentence):
            strong = found["true"] or found["should"] or found["meant"]
            before = mark is not None and _MARKS_OFF.search(sentence, mark.start(), found.start()) is not None
            if strong or before or (marked and not found["pronoun"]):
                value = _stated(sentence[found.end() :], corrected) or value
        marked = mark is not None or (marked and not sentence.strip())
    return value


def supersedes(before: str, between: str) -> bool:
    """Whether an answer behind `before` was only a first attempt, or wrong, by what stands between it and the next."""
    first = _AT_FIRST.search(before[-300:]) is not None and _TURN.search(between[:_MOST]) is not None
    return first or _FAULT.search(between[:_MOST]) is not None


def _stated(text: str, corrected: str) -> str:
    text = _REST.sub("", in_figures(text.strip(" *_"))).strip(" *_")
    words = as_words(text) and as_words(corrected) and len(text.split()) < 3
    return text if words or _VALUE.match(in_figures(text)) else ""


def takes_back(text: str) -> bool:
    """Whether `text` takes the answer before it back."""
    return _TAKEN_BACK.search(text[-_MOST:]) is not None


def introduces(text: str) -> bool:
    """Whether `text` ends in the words of a correction, so that what follows is the corrected answer."""
    end = text[-300:].rstrip(" $*([\\")
    mark = _MARK.search(end)
    return any(
        found.end() >= len(end) and (mark or found["true"] or found["should"] or found["meant"])
        for found in _STATEMENT.finditer(end)
    )
