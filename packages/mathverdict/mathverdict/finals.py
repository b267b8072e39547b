r"""What counts as an answer: the final boxes of a reply, the content of a file, the value of a reference, what a text
states in words: "The answer is: **42**", "The probability is **3/7**.", and corrects: "Actually, the answer is 3."

Invariant: nothing here judges mathematics. Several different answers are all handed on, so that the verdict can see the
conflict. A sentence that denies, doubts, offers alternatives or asks states nothing; what it says beside the value has
to be of the few forms that cannot change it, or of the question. Only a sentence that says so corrects an answer.
"""

import re
from functools import lru_cache, partial
from typing import NamedTuple

from .normalize import closing_bracket, without_math_marks
from .quantities import measure, unit_behind
from .words import as_words, in_figures, takes_back

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
_TRUE = r"(?:(?:correct|right|actual|true|proper|revised|corrected|updated|new)\s+)"
_NOUN = r"(?:answer|result|solution|value|number|count|total|sum|probability|area|length|ratio)"
_IS = (
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
    rf"\b(?:(?:the|my|our)\s+)?(?:final\s+)?(?P<true>{_TRUE})?(?:final\s+)?{_NOUN}{_PLACE}{_IS}"
    rf"|\b(?P<pronoun>it|that|this|[a-z](?=\s*=))(?:(?P<should>\s*(?:should|must)\s+(?:\w+\s+)?(?:be"
    rf"|have\s+been)\s+)|{_IS})|(?P<meant>\b(?:i|we)\s+meant\s+(?:to\s+(?:say|write)\s+)?|\bcorrection\s*:\s*)",
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
_CHANGE_OF_MIND = re.compile(
    r"\b(?:but|however|yet|corrected|correcting|rechecking|on checking|second|actually)\b", re.IGNORECASE
)
_FAULT = re.compile(
    r"\b(?:but|however|yet|oops|wait)\b[^.\n]{0,20}\b(?:i|we|that|this|it)\b[^.\n]{0,40}\b(?:forg[eo]t\w*|missed|misses|"
    r"misread|overlook\w*|wrong|incorrect|mistake\w*|error|double[- ]count\w*|(?:over|mis)(?:count|calculat)\w*|"
    r"not (?:right|correct)|(?:left|leaves?) out)\b",
    re.IGNORECASE,
)
_MOST = 4000
_LONGEST = 600
_ENDS = re.compile(r"(?:(?<=[.?])|(?<=[A-Za-z]{2}!))(?:\*\*)?\s+(?=[^a-z\s])|(?<=[\d$)*][.?])\s+|\n+")
_CLOSING_WORDS = re.compile(
    r"\s*(?:I hope (?:it|this|that) (?:is correct|helps)|Hope (?:it|this) helps|Let me know\b[^.!?\n]*)[.!?]*\s*$",
    re.IGNORECASE,
)
_PICTURES = re.compile("[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f]")
_EMPHASIZED = re.compile(r"\*\*(?P<value>[^*\n]+?)\*\*|(?<!\w)__(?P<other>[^_\n]+?)__(?!\w)")
_DOUBT = re.compile(
    r"\?|n['\u2019]t\b|\b(?:not|never|cannot|neither|nor|no longer|if|unless|suppos\w+|assum\w+|maybe|perhaps|possibly"
    r"|probably|might|may|could|would|wrong\w*|incorrect\w*|mistake\w*|error|false\w*|instead|rather|except|guess\w*"
    r"|unsure|either|den(?:y|ied)|doubt\w*|contradict\w*|impossible|hardly|barely|nearly|almost|wait|exclud\w+|says?"
    r"|said|thinks?|thought|believes?|wants?|expect\w*|seems?|appears?|looks|(?<!least )upper bound|(?<!greatest )lower"
    r" bound|(?:of|to|from|with|than) (?:the|my|our) (?:answer|result|solution)|initially|at first|claim\w*|actually"
    r"|but|however|although|though)\b",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\b(?:half|twice|thrice|double|triple|minus|plus|less|more|fewer|than|squared|cubed|(?:\d|times) (?:times|the)|or"
    r"|(?:opposite|negative|inverse|reciprocal|square|cube|root|logarithm|log|complement|multiple|percent|fraction) of"
    r")\b(?! than\b)",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"\A(?:(?:so|thus|hence|therefore|consequently|then|finally|and|now|overall|in conclusion|in total|as a result|"
    r"this means|it follows that|we (?:conclude|see|find|have) that|that is|i\.e\.|clearly|answer)\s*[,:]?\s+)+",
    re.IGNORECASE,
)
_ADVERB = (
    r"(?:(?:exactly|definitely|only|precisely|therefore|thus|then|hence|a total of|also|simply|just|now|equal to|about"
    r"|given by|in total|indeed|found to be|as follows|approximately|:)\s*)*"
)
_VERB = (
    r"(?:(?:went|goes|is) (?:up|down) by|(?:increased|decreased|rose|fell|grew|dropped) by|(?:falls|occurs|is) on"
    r"|(?:is|are|arrives|leaves|ends|starts|meets?|crosses) at|(?:is|are) defined for|has (?:the )?(?:equation|value)"
    r"|is|are|was|were|equals?|gives?|gets?|obtains?|have|has|had|costs?|needs?|pays?|paid|makes?|made|takes?|took"
    r"|spends?|spent|travels?|travell?ed|walks?|walked|runs?|ran|drives?|drove|measures?|earns?|earned|saves?|saved"
    r"|contains?|becomes?|yields?|sells?|sold|buys?|bought|totals|reads?|weighs?|(?:comes|amounts|adds up|works out"
    r"|simplifies|reduces|evaluates|converges|tends) to|sums? to|approaches|finds?|must be|should be|to be)"
)
_STATES = re.compile(rf"(?P<subject>.*\S)\s+{_VERB}\s*:?\s+{_ADVERB}(?P<value>\S.*)", re.IGNORECASE | re.DOTALL)
_NO_TAIL = (
    r"hundred|thousand|million|billion|dozens?|power|base|cents?|percent\w*|than|not|less|more|fewer|one|two|three|four"
    r"|five|six|seven|eight|nine|ten|twenty|half|halves|thirds?|quarters?|tenths?|th|and|or|but|short|off|away|wrong|mod"
    r"|other|another|except|between|below|above|under|over|minus|plus|times|squared|cubed|degrees?|if|unless|modulo"
)
_NO_REPETITION = re.compile(rf"\b(?:{_NO_TAIL}|at least|at most|up to|all of)\b|[^\w\s.,*'\u2019]", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z'\u2019]*")
_stem = partial(re.compile(r"(?<=\w\w\w)(?:ing|e?d|e?s|e)+$").sub, "")
_FORMULA = re.compile(r"(?<!\\)\$(?=[^\s$])[^$]+(?<!\s)\$(?!\d)|\\\([^()]+\\\)")
_FIGURE = re.compile(r"[-\u2212]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?")
_CLAUSE = re.compile(
    r"\A(?:.*(?:,\s*(?:and\s+)?(?:so|thus|hence|therefore|which gives|giving|(?:so\s+)?we (?:see|find|get|have|obtain)"
    r"(?: that)?|that is)|\band(?= \w+ing gives\b))|[A-Z][a-z]+ing(?:\b[^:]*:|,))\s+",
    re.DOTALL,
)
_REASON = re.compile(r",\s*(?:since|because)\s.*", re.DOTALL)
_IT_IS = re.compile(r"\b(it|that)['\u2019]s\b", re.IGNORECASE)
_YES_OR_NO = re.compile(r"(?:yes|no)\b[,.:;]? \w", re.IGNORECASE)
_NO_FIGURE = re.compile(r"[^-\d\s.,/$]")
_NOTHING = "nothing that is named"
_TAIL = re.compile(
    rf"\s+(?:in total|in all|altogether|left|long|wide|high|tall|deep|each|every|per|to|in|for|on|at|of|from|with|after"
    rf"|total|today|overall|,\s*as)(?:\s+(?!(?:{_NO_TAIL})\b)[A-Za-z][A-Za-z'\u2019-]*)*\s*$",
    re.IGNORECASE,
)
_ENDING = " .,;:*_"
_FUNCTION_WORDS = "so thus hence therefore there it he she we they the a an is are was were be of at to for from on by \
with this that these those such each has have will can point value total still"
_HEADING = re.compile(r"^#{1,6}\s+(?!#)")
_EMPHASIS = re.compile(r"(?<![\w)\]}*])(\*\*|__)(?=[^\s*_])(.{1,200}?)(?<=[^\s*_])\1(?![\w(*])")
_DISPLAY = re.compile(
    r"\$\$|(?<!\\)\\[\[\]]|\\(?:begin|end)\{(?:equation|align|gather|multline|eqnarray|displaymath|math)\*?\}"
)
_UNFINISHED = re.compile(r"(?:[a-z,:=]|\bI)\s*$")
_FENCE = re.compile(r"^\s*(?:```|~~~)[\w-]*\s*$")
_LABEL = re.compile(r"(?:the\s+|my\s+)?(?:final\s+|correct\s+)?answer\s*(?:is)?\s*[:.=]?", re.IGNORECASE)
_LINE = re.compile(
    r"^(?P<lead>.*?)\b(?P<noun>answer|result|solution)\b(?P<of>\s+(?:to|of|for|in)\s+[^:=;.]{1,60}?)?\s*"
    r"(?:\bis\b\s*:?|:|=)\s*(?P<value>\S.*)$",
    re.IGNORECASE,
)
_BEFORE_NOUN = re.compile(
    r"(?:.*[.,;:!]\s+)?(?:(?:so|thus|hence|therefore|and|then|finally|consequently|overall|now|we get|in conclusion)"
    r"[,:]?\s+)*(?:(?:the|my|our|this|that)\s+)?(?:(?:final|correct|numerical|exact|overall|required|desired)\s+)*",
    re.IGNORECASE,
)


class FinalAnswers(NamedTuple):
    """The answers that a text presents as final; `reason` says why there is none."""

    answers: tuple[str, ...] = ()
    joined: str = ""
    """Several boxes listed side by side ("`A` and `B`") as one list; empty otherwise."""
    reason: str = ""
    stated: tuple[str, ...] = ()
    """Of the one answer: the readings of the value that it states in a sentence."""


class _Box(NamedTuple):
    start: int
    end: int
    content: str | None
    """`None`: the braces do not close."""
    split: bool = False
    r"""More than the one character that LaTeX takes stands behind a `\boxed` without braces."""


def finals_of_reply(text: str, question: str = "") -> FinalAnswers:
    """The final boxes of a model's reply, after any thinking."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif "<think>" in text:
        return FinalAnswers(reason="unfinished_thinking")
    if not text.strip():
        return FinalAnswers(reason="empty")
    return _final_boxes(text, question) or FinalAnswers(reason="no_box")


def finals_of_file(text: str, question: str = "") -> FinalAnswers:
    """The final answer in a file: boxed, tagged, announced, or the file's few lines as they are."""
    text = _PICTURES.sub("", text.lstrip("\ufeff").strip()).rstrip()
    for _ in range(3):
        text = text[:-_LONGEST] + _CLOSING_WORDS.sub("", text[-_LONGEST:])
    if not text:
        return FinalAnswers(reason="empty")
    if boxed := _final_boxes(text, question):
        return boxed
    if marked := _marked(text):
        return _all_or_empty(marked)
    shown = displayed(text)
    text = displays_in_lines(text)
    unfenced = (line.strip() for line in text.splitlines() if not _FENCE.match(line))
    lines = list(filter(None, (_EMPHASIS.sub(r"\2", _HEADING.sub("", line)).strip() for line in unfenced)))
    if values := announced(lines):
        return _all_or_empty(values)
    if not lines:
        return FinalAnswers(reason="empty")
    if len(lines) > MAX_BARE_LINES:
        readings = shown or stated(text, question, bare=False)
        return FinalAnswers(readings[:1], stated=readings) if readings else FinalAnswers(reason="no_answer_marked")
    environment = "\\begin{" in text
    whole = " ".join(lines) if environment else ", ".join(line.rstrip(",;") for line in lines)
    return FinalAnswers((whole,), stated=(*shown, *stated(text, question)))


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


def _all_or_empty(answers: list[str]) -> FinalAnswers:
    if not answers[-1]:
        return FinalAnswers(reason="empty")
    different = tuple(dict.fromkeys(answers))
    return FinalAnswers(different, stated=stated(different[0]) if len(different) == 1 else ())


def _final_boxes(text: str, question: str) -> FinalAnswers | None:
    """The last box, with those before it that are as final as it; `None` if there is no box."""
    boxes = _boxes(text)
    if not boxes:
        return None
    if boxes[-1].content is None or boxes[-1].split:
        return FinalAnswers(reason="unbalanced_box")
    if not boxes[-1].content.strip():
        return FinalAnswers(reason="empty")
    if corrected := correction(text[boxes[-1].end :], boxes[-1].content):
        return FinalAnswers((corrected,))
    denied = _DENIED_BEFORE.search(_line_before(text, boxes[-1])) or _DENIED_BEHIND.match(text, boxes[-1].end)
    if denied or _TAKEN_BACK.search(text[boxes[-1].end :][-_MOST:]):
        return FinalAnswers(reason="taken_back")
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
    return FinalAnswers(tuple(answers), _joined(text, rivals) if only_listed and len(rivals) > 1 else "")


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


def correction(text: str, corrected: str) -> str:
    """The value that the last explicit correction in `text` gives in place of the answer `corrected`; else empty."""
    value, marked = "", False
    for sentence in _SENTENCES.split(text[-_MOST:]):
        mark = _MARK.search(sentence)
        for found in _STATEMENT.finditer(sentence):
            strong = found["true"] or found["should"] or found["meant"]
            before = mark is not None and _MARKS_OFF.search(sentence, mark.start(), found.start()) is not None
            if strong or before or (marked and not found["pronoun"]):
                value = _corrected(sentence[found.end() :], corrected) or value
        marked = mark is not None or (marked and not sentence.strip())
    return value


def supersedes(before: str, between: str) -> bool:
    """Whether an answer behind `before` was only a first attempt, or wrong, by what stands between it and the next."""
    first = _AT_FIRST.search(before[-300:]) is not None and _CHANGE_OF_MIND.search(between[:_MOST]) is not None
    return first or _FAULT.search(between[:_MOST]) is not None


def _corrected(text: str, corrected: str) -> str:
    text = _REST.sub("", in_figures(text.strip(" *_"))).strip(" *_")
    words = as_words(text) and as_words(corrected) and len(text.split()) < 3
    return text if words or _VALUE.match(in_figures(text)) else ""


def introduces(text: str) -> bool:
    """Whether `text` ends in the words of a correction, so that what follows is the corrected answer."""
    end = text[-300:].rstrip(" $*([\\")
    mark = _MARK.search(end)
    return any(
        found.end() >= len(end) and (mark or found["true"] or found["should"] or found["meant"])
        for found in _STATEMENT.finditer(end)
    )


def displays_in_lines(text: str) -> str:
    """`text` with every displayed formula in one line as `$…$`, at the end of the line that it completes."""
    first, *rest = _DISPLAY.split(text)
    if len(rest) % 2 or not rest:
        return text
    parts = [first]
    for shown, after in zip(rest[::2], rest[1::2], strict=True):
        line = parts[-1].rstrip().rpartition("\n")[2]
        if _UNFINISHED.search(line) and not line.startswith("#") and not _LABEL.fullmatch(line.strip("* ")):
            parts[-1] = parts[-1].rstrip() + " "
        rows = shown.split(r"\\") if r"\begin" not in shown else [shown]
        rows = [" ".join(row.replace("&", "").split()) if len(rows) > 1 else " ".join(row.split()) for row in rows]
        formula = "".join(row if row.startswith("=") else f", {row}" for row in rows if row).removeprefix(", ")
        parts += [f"${formula}$" if formula else "", after]
    return "".join(parts)


def displayed(text: str) -> tuple[str, ...]:
    """The formula that `text` ends with, displayed behind words that lead to it."""
    *_, lead, formula, behind = ["", "", *_DISPLAY.split(text)]
    lead = _ENDS.split(lead.strip())[-1]
    if behind.strip(_ENDING) or not _UNFINISHED.search(lead) or _DOUBT.search(lead) or _CHANGES.search(lead):
        return ()
    return (" ".join(formula.split()),)


def stated(text: str, question: str = "", bare: bool = True) -> tuple[str, ...]:
    """The readings of the value that the last sentence of `text` states, with and without what follows it; unless
    `bare` is allowed the sentence has to say of what it is the value."""
    sentences = [part for part in _ENDS.split(text.strip()) if part.strip(_ENDING)]
    if not sentences or len(sentences[-1]) > _LONGEST:
        return ()
    *before, last = sentences
    if corrected := correction(last, ""):
        return (corrected,)
    question = " ".join(question.split()).casefold()
    subject, readings = _statement(last, question)
    for sentence in before if subject else ():
        other, values = _statement(sentence, question) if len(sentence) <= _LONGEST else ("", ())
        if other == subject and not set(values) & set(readings):
            return ()
    return readings if bare or subject not in {"", _NOTHING} else ()


def _statement(sentence: str, question: str) -> tuple[str, tuple[str, ...]]:
    """Return what a sentence speaks of, and the readings of the value that it states."""
    sentence = _IT_IS.sub(r"\1 is", sentence)
    plain = _EMPHASIZED.sub(lambda found: found["value"] or found["other"], sentence)
    bare = without_math_marks(_REASON.sub("", plain)).strip(_ENDING)
    bare = _LEAD.sub("", _CLAUSE.sub("", bare), count=1)
    if _YES_OR_NO.match(bare):
        return "", (bare,)
    if _DOUBT.search(sentence):
        return "", ()
    repeated = _repeated(plain, _asked(question)) if question else ("", ())
    found = _STATES.fullmatch(bare)
    if found is None:
        clause = bare.rpartition(", ")[2]
        clauses = (bare, clause) if re.fullmatch(r"[A-Za-z]{2,} .*", clause) else (bare,)
        return repeated[0] or ("" if _NO_FIGURE.search(bare) else _NOTHING), (*repeated[1], *clauses)
    subject = found["subject"]
    if _CHANGES.search(subject) or re.search(r"[=<>]", subject):
        return repeated[0], (*repeated[1], bare)
    readings = _readings(found["value"])
    told = bare[len(subject) :].strip().casefold()
    if f"{told}?" in question and _WORD.fullmatch(subject):
        return told, (subject,)
    readings = (*readings, *repeated[1], *((bare,) if "," in bare or " and " in bare else ()))
    return " ".join(subject.casefold().split()), tuple(dict.fromkeys(readings))


def _repeated(sentence: str, asked: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The other words of a sentence and its one value, if all of these words are of the question."""
    values = list(_FORMULA.finditer(sentence)) or list(_FIGURE.finditer(sentence))
    if len(values) != 1:
        return "", ()
    before, behind = sentence[: values[0].start()], sentence[values[0].end() :]
    words = _WORD.findall(f"{_LEAD.sub('', before.lstrip(_ENDING))} {behind}".casefold())
    doubtful = _CHANGES.search(before) or _NO_REPETITION.search(before + behind)
    if doubtful or not words or not asked.issuperset(map(_stem, words)):
        return "", ()
    value, unit = values[0][0], _WORD.match(behind.lstrip(" $"))
    value = value.strip("$\\() ") if value.startswith(("$", "\\(")) else value
    return " ".join(words), (f"{value} {unit[0]}" if unit and measure(unit[0]) else value,)


def repeats(words: str, question: str) -> bool:
    """Whether `words` say nothing that the question does not."""
    return _asked(" ".join(question.split()).casefold()).issuperset(map(_stem, _WORD.findall(words.casefold())))


@lru_cache(maxsize=16)
def _asked(question: str) -> frozenset[str]:
    return frozenset(map(_stem, _WORD.findall(f"{_FUNCTION_WORDS} {question}")))


def _readings(value: str) -> tuple[str, ...]:
    value = in_figures(value.strip(_ENDING))
    shorter = _TAIL.sub("", value).strip(_ENDING)
    found = [value, shorter] if shorter and re.search(r"[\d\\]", shorter) else [value]
    if value.count("=") and "$" in value:
        # Of "$40 + $24 = $64" only the last amount needs its currency.
        found += [re.sub(r"\$(?=[\d.])", "", reading) for reading in found]
    return tuple(dict.fromkeys(found))


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
        if (
            match
            and _BEFORE_NOUN.fullmatch(match["lead"][-_LONGEST:])
            and not takes_back(match["lead"] + (match["of"] or ""))
        ):
            noun = "answer" if match["noun"].casefold() == "answer" else "other"
            found[noun].append(match["value"].strip().strip("_ "))
            last = index
    if any(_MARK.search(line) for line in lines[last + 1 :]):
        return []
    return found["answer"] or found["other"]
