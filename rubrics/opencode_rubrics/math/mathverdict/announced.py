"""The answers that a text announces in words: "The answer is: **42**", `## Answer` and the value below it.

Invariant: a line that denies or doubts ("Wrong answer: 42", "the answer is not 42") announces nothing, and all that
stands below a bare "Answer:" belongs to the value, so that a second value there is not overlooked.
"""

import re

from .words import takes_back

_HEADING = re.compile(r"^#{1,6}\s+(?!#)")
_EMPHASIS = re.compile(r"(?<![\w)\]}*])(\*\*|__)(?=[^\s*_])(.+?)(?<=[^\s*_])\1(?![\w(*])")
_FENCE = re.compile(r"^\s*(?:```|~~~)[\w-]*\s*$")
_LABEL = re.compile(r"(?:the\s+|my\s+)?(?:final\s+|correct\s+)?answer\s*(?:is)?\s*[:.=]?", re.IGNORECASE)
_LINE = re.compile(
    r"^(?P<lead>.*?)\b(?P<noun>answer|result|solution)\b(?P<of>\s+(?:to|of|for|in)\s+[^:=;.]{1,60}?)?\s*"
    r"(?:\bis\b\s*:?|:|=)\s*(?P<value>\S.*)$",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:.*[.,;:!]\s+)?(?:(?:so|thus|hence|therefore|and|then|finally|consequently|overall|now|we get|in conclusion)"
    r"[,:]?\s+)*(?:(?:the|my|our|this|that)\s+)?(?:(?:final|correct|numerical|exact|overall|required|desired)\s+)*",
    re.IGNORECASE,
)
_RETRACTION = re.compile(
    r"\b(?:actually|wait|correction|wrong|incorrect|mistake|scratch that|sorry|instead)\b", re.IGNORECASE
)


def clean_lines(text: str) -> list[str]:
    """The lines that are not empty and no code fence, without the marks of headings and emphasis."""
    lines = [
        _EMPHASIS.sub(r"\2", _HEADING.sub("", line.strip())).strip()
        for line in text.splitlines()
        if not _FENCE.match(line)
    ]
    return [line for line in lines if line]


def announced(lines: list[str]) -> list[str]:
    """The values that `lines` announce, in order; those that are called the answer win over results and solutions."""
    found: dict[str, list[str]] = {"answer": [], "other": []}
    last = 0
    for index, line in enumerate(lines):
        if _LABEL.fullmatch(line):
            if index + 1 < len(lines):
                found["answer"].append(", ".join(lines[index + 1 :]))
            return found["answer"]
        match = _LINE.match(line)
        if match and _LEAD.fullmatch(match["lead"]) and not takes_back(match["lead"] + (match["of"] or "")):
            noun = "answer" if match["noun"].casefold() == "answer" else "other"
            found[noun].append(match["value"].strip().strip("_ "))
            last = index
    if any(_RETRACTION.search(line) for line in lines[last + 1 :]):
        return []
    return found["answer"] or found["other"]
