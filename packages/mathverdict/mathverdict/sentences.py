r"""Answers that a text states in words: "The answer is: **42**", `## Answer` and the value below it, and the value of
its last sentence: "The probability is **3/7**.", "He runs 540 meters per week."

Invariant: a line or sentence that denies, doubts, offers alternatives or asks states nothing. All that stands below a
bare "Answer:" belongs to the value. What a sentence says before, in and behind the value has to be of the few forms
that cannot change it; a second sentence that gives the same thing another value makes both worthless.
"""

import re

from .corrections import correction
from .normalize import without_math_marks
from .words import in_figures, takes_back

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
    r"\b(?:half|twice|thrice|double|triple|minus|plus|less|more|fewer|than|squared|cubed|(?:\d|times) (?:times|the)|or|"
    r"(?:opposite|negative|inverse|reciprocal|square|cube|root|logarithm|log|complement|multiple|percent"
    r"|fraction) of)\b"
    r"(?! than\b)",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore|consequently|then|finally|and|now|overall|in conclusion|in total|as a result|"
    r"this means|it follows that|we (?:conclude|see|find|have) that|that is|i\.e\.|clearly|answer)\s*[,:]?\s+)+",
    re.IGNORECASE,
)
_ADVERB = (
    r"(?:(?:exactly|only|precisely|therefore|thus|then|hence|a total of|also|simply|just|now|equal to|given by"
    r"|in total|indeed|found to be|as follows|about|approximately|:)\s*)*"
)
_VERB = (
    r"(?:(?:went|goes|is) (?:up|down) by|(?:increased|decreased|rose|fell|grew|dropped) by|(?:falls|occurs|is) on"
    r"|(?:is|are|arrives|leaves|ends|starts|meets?) at|has (?:the )?(?:equation|value)|is|are|was|were|equals?|gives?"
    r"|gets?|obtains?|have|has|had|costs?|needs?|pays?|paid|makes?|made|takes?|took|spends?|spent|travels?|travell?ed"
    r"|walks?|walked|runs?|ran|drives?|drove|measures?|earns?|earned|saves?|saved|contains?|becomes?|yields?|sells?"
    r"|sold|buys?|bought|totals|reads?|weighs?|(?:comes|amounts|adds up|works out|simplifies|reduces|evaluates"
    r"|converges|tends) to|sums? to|approaches|finds?|must be|should be|to be)"
)
_STATES = re.compile(rf"(?P<subject>.*\S)\s+{_VERB}\s*:?\s+{_ADVERB}(?P<value>\S.*)", re.IGNORECASE | re.DOTALL)
_NO_TAIL = (
    r"hundred|thousand|million|billion|dozens?|power|base|cents?|percent\w*|than|not|less|more|fewer|one|two|three"
    r"|four|five|six|seven|eight|nine|ten|twenty|half|halves|thirds?|quarters?|tenths?|th|and|or|but|short|off|away"
    r"|wrong|other|another|except|between|below|above|under|over|minus|plus|times|squared|cubed|degrees?|if|unless|mod"
    r"|modulo"
)
_TAIL = re.compile(
    rf"\s+(?:in total|in all|altogether|left|each|every|per|to|in|for|on|at|of|from|with|after|total|today|overall"
    rf"|,\s*as)"
    rf"(?:\s+(?!(?:{_NO_TAIL})\b)[A-Za-z][A-Za-z'\u2019-]*)*\s*$",
    re.IGNORECASE,
)
_ENDING = " .,;:*_"
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


def stated(text: str) -> tuple[str, ...]:
    """The readings of the value that the last sentence of `text` states, with and without what follows it."""
    sentences = [part for part in _ENDS.split(text.strip()) if part.strip(_ENDING)]
    if not sentences or len(sentences[-1]) > _LONGEST:
        return ()
    *before, last = sentences
    if corrected := correction(last, ""):
        return (corrected,)
    subject, readings = _statement(last)
    for sentence in before:
        other, values = _statement(sentence) if len(sentence) <= _LONGEST else ("", ())
        if other and other == subject and not set(values) & set(readings):
            return ()
    return readings


def _statement(sentence: str) -> tuple[str, tuple[str, ...]]:
    """What a sentence speaks of, and the readings of the value that it states."""
    emphasized = [found["value"] or found["other"] for found in _EMPHASIZED.finditer(sentence)]
    emphasized = [value.strip() for value in emphasized if not value.strip().endswith(":")]
    bare = without_math_marks(_EMPHASIZED.sub(lambda found: found["value"] or found["other"], sentence)).strip(_ENDING)
    bare = _LEAD.sub("", bare, count=1) if _LEAD.match(bare) else bare
    found = _STATES.fullmatch(bare)
    if found is None:
        clause = bare.rpartition(", ")[2]
        if _DOUBT.search(bare):
            return "", ()
        return "", (bare, clause) if re.fullmatch(r"[A-Za-z]{2,} .*", clause) else (bare,)
    subject = found["subject"]
    if _DOUBT.search(sentence) or _CHANGES.search(subject) or re.search(r"[=<>]", subject):
        return "", ()
    readings = _readings(found["value"])
    if len(emphasized) == 1 and emphasized[0] != bare and found["value"].startswith(emphasized[0].strip("$ .")):
        readings = (*readings, emphasized[0].strip(_ENDING))
    return " ".join(subject.casefold().split()), tuple(dict.fromkeys(readings))


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
