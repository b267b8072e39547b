r"""What counts as an answer: the final boxes of a reply, the content of a file, the value of a reference.

Invariant: nothing here judges mathematics. A text gives the answers that it presents as final, or the reason why
there is none. Several different ones are all handed on, so that the verdict can see the conflict.
"""

import re
from dataclasses import dataclass

from .normalize import closing_bracket
from .quantities import unit_behind
from .sentences import (
    announced,
    clean_lines,
    correction,
    displayed,
    displays_in_lines,
    introduces,
    repeats,
    stated,
    supersedes,
    takes_answer_back,
    without_closing_words,
)

_NEAR = 300
MAX_BARE_LINES = 12
"""More lines without any mark are a text about the answer, not the answer."""
_BOX = re.compile(r"\\\\?(?:boxed|fbox)(?![a-zA-Z])\s*")
_IN_BOX = re.compile(rf"(?P<box>{_BOX.pattern}(?P<open>\{{)?)|\\.|(?P<brace>[{{}}])", re.DOTALL)
_SUBJECT = re.compile(r"(?:^|[.!?]\s+|\n)(?P<subject>[A-Z][^.!?\n$\\]{3,60}?)(?:\s+(?:is|was|are)\b|:)[^.!?\n]{0,60}$")
_NO_STEP = re.compile(r"(?i)\b(?:it|th[ia][st]|answer|result|solution|guess|option|choice|candidate|possib\w*|or)\b")
_ONE_TOKEN = re.compile(r"\\[A-Za-z]+|.")
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"^\s*####\s*(.+?)\s*$", re.MULTILINE)
_ANNOUNCES = re.compile(r"\b(?:final|answer|result)\b[^\n]{0,60}$", re.IGNORECASE)
_SURROUNDINGS = re.compile(r"\$|\\[()\[\]]|\\(?:quad|qquad|text|mathrm|,|;|!| )|[{}*~_`\s]|\.(?=\s|$)")
_LISTED = re.compile(r"(?:[,;&]|and|or|[,;](?:and|or))(?:[a-z](?:_?\d)?(?:=|is))?")
_LISTED_IN_WORDS = re.compile(r"\s*\$?\s*(?:[,;]|,?\s*(?:and|or)\b)[^.\n]{1,40}?(?:is|are|=|:)\s*\$?\s*", re.IGNORECASE)
_SUPERSEDED = re.compile(
    r"\b(?:then|finally|end|so|thus|therefore|hence|total|answer|final|actually|wait|but|not|no|instead|check|verify|"
    r"again|means|gives|implies|becomes|equivalently|i\.e\.)\b|\\(?:implies|Rightarrow)|=\s*\$?\s*$",
    re.IGNORECASE,
)
_OR = re.compile(
    r"(?:\\[,;: )]|[\s$,])*(?:\\text\s*\{\s*or\s*\}|or\b(?:\s+(?:maybe|perhaps|possibly|else))?)[\s$]*"
    r"(?P<other>-?(?:\d[\d,]*(?:\.\d+)?(?:/\d+)?|\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\}))"
)
_MINUS = re.compile(r"(?:^|[$=(\[:,]|\\[(\[])\s*-$")
_ASSIGNED = re.compile(r"(?<![A-Za-z\\])(?P<name>[A-Za-z](?:_\{?\w\}?)?)\s*=\s*\$?\s*$")
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n't(?:\s+be)?|\bnever|\b(?:wrong|incorrect)(?:\s+answer)?(?:\s+is)?)\W*$", re.IGNORECASE
)
_DENIED_BEHIND = re.compile(
    r"[\s$.,;:!*)\]]*(?:(?:is|was|are)\s+(?:not\b|wrong\b|incorrect\b|false\b)|isn't\b|wrong\b|incorrect\b|(?:oh\s+)?no[,.]|wait\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Finals:
    """The answers that a text presents as final; `reason` says why there is none."""

    answers: tuple[str, ...] = ()
    joined: str = ""
    """Several boxes listed side by side ("`A` and `B`") as one list; empty otherwise."""
    reason: str = ""
    stated: tuple[str, ...] = ()
    """Of the one answer: the readings of the value that it states in a sentence."""


@dataclass(frozen=True)
class _Box:
    start: int
    end: int
    content: str | None
    """`None`: the braces do not close."""
    split: bool = False
    r"""More than the one character that LaTeX takes stands behind a `\boxed` without braces."""


def finals_of_reply(text: str, question: str = "") -> Finals:
    """The final boxes of a model's reply, after any thinking."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif "<think>" in text:
        return Finals(reason="unfinished_thinking")
    if not text.strip():
        return Finals(reason="empty")
    return _final_boxes(text, question) or Finals(reason="no_box")


def finals_of_file(text: str, question: str = "") -> Finals:
    """The final answer in a file: boxed, tagged, announced, or the file's few lines as they are."""
    text = without_closing_words(text.lstrip("\ufeff").strip())
    if not text:
        return Finals(reason="empty")
    if boxed := _final_boxes(text, question):
        return boxed
    if marked := _marked(text):
        return _all_or_empty(marked)
    shown = displayed(text)
    text = displays_in_lines(text)
    lines = clean_lines(text)
    if values := announced(lines):
        return _all_or_empty(values)
    if not lines:
        return Finals(reason="empty")
    if len(lines) > MAX_BARE_LINES:
        readings = shown or stated(text, question, bare=False)
        return Finals(readings[:1], stated=readings) if readings else Finals(reason="no_answer_marked")
    environment = "\\begin{" in text
    whole = " ".join(lines) if environment else ", ".join(line.rstrip(",;") for line in lines)
    return Finals((whole,), stated=(*shown, *stated(text, question)))


def reference_value(text: str) -> str:
    """The value in a reference answer: its boxes, last `<answer>` tag or `####` line, else all of it; may be empty.
    Several boxes are one list, unless the text between them says that a later one supersedes those before it."""
    boxes = [box for box in _boxes(text) if box.content]
    if boxes:
        listed = [boxes[-1]]
        for box, following in zip(reversed(boxes[:-1]), reversed(boxes[1:]), strict=True):
            if _SUPERSEDED.search(text[box.end : following.start]) and not _is_listed(text, box, following):
                break
            listed.insert(0, box)
        return _joined(text, listed)
    if marked := _marked(text):
        return marked[-1]
    return displays_in_lines(text).strip()


def has_box(text: str) -> bool:
    return _BOX.search(text) is not None


def _marked(text: str) -> list[str]:
    return [found.strip() for found in _TAG.findall(text)] or _HASHES.findall(text)


def _all_or_empty(answers: list[str]) -> Finals:
    if not answers[-1]:
        return Finals(reason="empty")
    different = tuple(dict.fromkeys(answers))
    return Finals(different, stated=stated(different[0]) if len(different) == 1 else ())


def _final_boxes(text: str, question: str) -> Finals | None:
    """The last box, with those before it that are as final as it; `None` if there is no box."""
    boxes = _boxes(text)
    if not boxes:
        return None
    if boxes[-1].content is None or boxes[-1].split:
        return Finals(reason="unbalanced_box")
    if not boxes[-1].content.strip():
        return Finals(reason="empty")
    if corrected := correction(text[boxes[-1].end :], boxes[-1].content):
        return Finals((corrected,))
    denied = _DENIED_BEFORE.search(_line_before(text, boxes[-1])) or _DENIED_BEHIND.match(text, boxes[-1].end)
    if denied or takes_answer_back(text[boxes[-1].end :]):
        return Finals(reason="taken_back")
    rivals, only_listed = [boxes[-1]], True
    for box, following in zip(reversed(boxes[:-1]), reversed(boxes[1:]), strict=True):
        between = text[box.end : following.start]
        before = text[max(0, box.start - _NEAR) : box.start]
        if box.content is None or introduces(between) or supersedes(before, between):
            break
        if _is_step(text, box, following, question):
            break
        listed = only_listed and _is_listed(text, box, following)
        if listed or _as_final(text, box, following, between):
            only_listed = listed
            rivals.insert(0, box)
    answers = [_with_surroundings(text, box) for box in rivals]
    if other := _OR.match(text, boxes[-1].end):
        answers.append(other["other"])
    answers = list(dict.fromkeys(answers))
    return Finals(tuple(answers), _joined(text, rivals) if only_listed and len(rivals) > 1 else "")


def _with_surroundings(text: str, box: _Box) -> str:
    content, behind = _unboxed(box.content or ""), unit_behind(text, box.end)
    if behind and not behind.startswith(" "):
        content = f"({content}){behind}" if behind[0] in "\\^" else content + behind
    else:
        content += behind
    return f"-({content})" if _MINUS.search(text[max(0, box.start - 20) : box.start]) else content


def _is_listed(text: str, box: _Box, following: _Box) -> bool:
    """Whether two boxes are parts of one answer: "`A` and `B`", "x = `A` or x = `B`", "least `A` and most `B`"."""
    between = text[box.end : following.start]
    if _LISTED.fullmatch(_SURROUNDINGS.sub("", between).lower()):
        return True
    return _LISTED_IN_WORDS.fullmatch(between) is not None and not _SUPERSEDED.search(between.rstrip(" $=:"))


def _joined(text: str, boxes: list[_Box]) -> str:
    contents = [_unboxed(box.content or "") for box in boxes]
    before = [_ASSIGNED.search(text[max(0, box.start - _NEAR) : box.start]) for box in boxes]
    names = [found["name"] if found else "" for found in before]
    if len(boxes) > 1 and all(names) and len(set(names)) == len(names):
        contents = [f"{name}={content}" for name, content in zip(names, contents, strict=True)]
    return ", ".join(dict.fromkeys(contents))


def _as_final(text: str, box: _Box, following: _Box, between: str) -> bool:
    if "\n" not in between or not _SURROUNDINGS.sub("", between):
        return True
    return all(_ANNOUNCES.search(_line_before(text, each)) for each in (box, following))


def _is_step(text: str, box: _Box, following: _Box, question: str) -> bool:
    """Whether a box holds what was not asked for, and the following one what was, by the sentences around them."""
    subjects = [_SUBJECT.search(text[max(0, each.start - _NEAR) : each.start]) for each in (box, following)]
    first, second = (found["subject"] if found else "it" for found in subjects)
    return not _NO_STEP.search(f"{first} {second}") and repeats(second, question) and not repeats(first, question)


def _line_before(text: str, box: _Box) -> str:
    return text[text.rfind("\n", 0, box.start) + 1 : box.start]


def _boxes(text: str) -> list[_Box]:
    """Outermost boxes in order; braces that do not close run to the end of the text."""
    found: list[_Box] = []
    position = 0
    while match := _BOX.search(text, position):
        start = match.end()
        if text[start : start + 1] == "{":
            end = closing_bracket(text, start)
            content = None if end is None else text[start + 1 : end]
            position = len(text) if end is None else end + 1
        else:
            token = re.compile(r"\S+?(?=[\s$.,;]|\\[)\]]|$)").match(text, start)
            content, position = (token[0], token.end()) if token else (None, start)
        split = text[start : start + 1] != "{" and not _ONE_TOKEN.fullmatch(content or "")
        found.append(_Box(match.start(), position, content, split))
    return found


def _unboxed(content: str) -> str:
    closing: list[str] = []

    def kept(found: "re.Match[str]") -> str:
        if found["open"] or found["brace"] == "{":
            closing.append("" if found["open"] else "}")
        if found["box"]:
            return ""
        return closing.pop() if found["brace"] == "}" and closing else found[0]

    return _IN_BOX.sub(kept, content).strip()
