r"""Answers that a text states in words: "The answer is: **42**", `## Answer` and the value below it, and the value of
its last sentence: "The probability is **3/7**."; and explicit corrections: "Actually, the answer is 3." behind a box.

Invariant: a line or sentence that denies, doubts, offers alternatives or asks states nothing. All that stands below a
bare "Answer:" belongs to the value. What a sentence says before, in and behind the value has to be of the few forms
that cannot change it, or of the question; a second sentence that gives the same another value makes both worthless.
Only a sentence that says that it corrects, and what is right instead, replaces an answer.
"""

import re
from functools import lru_cache, partial

from .normalize import without_math_marks
from .quantities import measure
from .words import as_words, in_figures, takes_back

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
_LONGEST = 600
_ENDS = re.compile(r"(?:(?<=[.?])|(?<=[A-Za-z]{2}!))(?:\*\*)?\s+(?=[^a-z\s])|(?<=[\d$)*][.?])\s+|\n+")
_CLOSING_WORDS = re.compile(
    r"\s*(?:I hope (?:it|this|that) (?:is correct|helps)|Hope (?:it|this) helps|Let me know\b[^.!?\n]*)[.!?]*\s*$",
    re.IGNORECASE,
)
_PICTURES = re.compile("[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f]")
_EMPHASIZED = re.compile(r"\*\*(?P<value>[^*\n]+?)\*\*|(?<!\w)__(?P<other>[^_\n]+?)__(?!\w)")
_DOUBT = re.compile(
    r"\?|n['\u2019]t\b|\b(?:not|never|cannot|neither|nor|no longer|if|unless|suppose|supposing|assum\w+|maybe|perhaps"
    r"|possibly|probably|might|may|could|would|wrong\w*|incorrect\w*|mistake\w*|error|false\w*|instead|rather|except"
    r"|guess\w*|unsure|either|denied|deny|doubt\w*|unlikely|contradict\w*|impossible|hardly|barely|nearly|almost|wait"
    r"|exclud\w+|says?|said|thinks?|thought|believes?|hopes?|wants?|expect\w*|suspect\w*|seems?|appears?|looks|odds"
    r"|(?:first|previous|earlier|initial|old|original|naive) (?:answer|guess|result|attempt|try)"
    r"|(?<!least )upper bound|(?<!greatest )lower bound|(?:when|if|after|before) (?:we|you|i)|(?:of|to|from|with"
    r"|than) (?:the|my|our) (?:answer|result|solution)|"
    r"initially|at first|tempting|mislead\w*|claim\w*|actually|but|however|although|though)\b",
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
_RETRACTION = re.compile(
    r"\b(?:actually|wait|correction|wrong|incorrect|mistake|scratch that|sorry|instead)\b", re.IGNORECASE
)


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
    first = _AT_FIRST.search(before[-300:]) is not None and _TURN.search(between[:_MOST]) is not None
    return first or _FAULT.search(between[:_MOST]) is not None


def _corrected(text: str, corrected: str) -> str:
    text = _REST.sub("", in_figures(text.strip(" *_"))).strip(" *_")
    words = as_words(text) and as_words(corrected) and len(text.split()) < 3
    return text if words or _VALUE.match(in_figures(text)) else ""


def takes_answer_back(text: str) -> bool:
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


def without_closing_words(text: str) -> str:
    """`text` without "I hope it is correct." and pictures behind it."""
    text = _PICTURES.sub("", text).rstrip()
    for _ in range(3):
        text = text[:-_LONGEST] + _CLOSING_WORDS.sub("", text[-_LONGEST:])
    return text


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
    """What a sentence speaks of, and the readings of the value that it states."""
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
        if (
            match
            and _BEFORE_NOUN.fullmatch(match["lead"][-_LONGEST:])
            and not takes_back(match["lead"] + (match["of"] or ""))
        ):
            noun = "answer" if match["noun"].casefold() == "answer" else "other"
            found[noun].append(match["value"].strip().strip("_ "))
            last = index
    if any(_RETRACTION.search(line) for line in lines[last + 1 :]):
        return []
    return found["answer"] or found["other"]
