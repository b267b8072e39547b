"""Whether a text that the agent can read holds what it must not know.

A text holds a secret of several lines when all of them are in it in their order, however they are indented, also as
additions of a patch or within JSON. A short answer is in many texts by chance; it is a leak where it is the whole text,
or where its line says that it is the answer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import contains

_GROUPED = re.compile(r"(?<=\d)[,_'\u00a0\u202f](?=\d{3}(?!\d))")
"""What stands between the thousands of a number."""
_LEAST = 16
"""Characters: a shorter text is not a secret."""
_LEAST_WHOLE = 3
NAMES = "the names of files"
"""What the text of all paths is called."""
_SAYS = r"(?:answer(?:\W{1,3}key)?|\bans\b|solution|gold|expected|reference|correct|secret|ground.?truth)"


@dataclass(frozen=True)
class Secret:
    """What must not be read, and what it is called."""

    name: str
    lines: tuple[str, ...]
    together: bool = False
    """Whether the lines must follow each other: the work itself may be to pick lines from a file."""

    @property
    def counts(self) -> bool:
        """Whether it is long enough to be told from chance."""
        return sum(map(len, self.lines)) >= _LEAST


def secret_of(name: str, text: str, *, together: bool = False) -> Secret:
    """The secret of a whole text."""
    return Secret(name, tuple(_lines(text)), together)


def change_of(name: str, before: str | None, after: str) -> Secret:
    """The secret of a changed file: its new lines; of a new file all of them, together."""
    if before is None:
        return secret_of(name, after, together=True)
    old = set(_lines(before))
    return Secret(name, tuple(line for line in _lines(after) if line not in old))


def _lines(text: str) -> list[str]:
    """The lines that can tell, of four characters or more, without what a patch or an indentation puts before them."""
    found = (line.strip().removeprefix("+").strip() for line in text.splitlines())
    return [line for line in found if len(line) >= 4]


def holds(text: str, secret: Secret) -> bool:
    if not secret.counts or (secret.lines[0] not in text and "\\n" not in text):
        return False
    return any(_holds(lines, secret) for lines in _spellings(text))


def _spellings(text: str) -> Iterator[list[str]]:
    yield _lines(text)
    if "\\n" in text:
        text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
        yield _lines(text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\"))


def _holds(lines: list[str], secret: Secret) -> bool:
    if secret.together:
        size = len(secret.lines)
        starts = [number for number, line in enumerate(lines) if secret.lines[0] in line]
        runs = (lines[start : start + size] for start in starts)
        return any(len(run) == size and all(map(contains, run, secret.lines)) for run in runs)
    rest = iter(lines)
    return all(any(wanted in line for line in rest) for wanted in secret.lines)


def says_answer(text: str, answer: str, name: str = "") -> bool:
    """Whether the text is the answer, or a line of it says what the answer is; `name` is what the text is called."""
    answer = answer.strip()
    if not answer:
        return False
    named = re.search(_SAYS, name, re.IGNORECASE)
    if text.strip().strip("\"'") == answer and (named or len(answer) >= _LEAST_WHOLE):
        return True
    case = "i" if len(answer) > _LEAST_WHOLE else "-i"  # "the answer is a letter" does not say A
    whole = rf"(?<![\w.])(?{case}:{re.escape(answer)})(?!\w|\.\d)"
    between = r"\W{0,3}(?:is|are|was|:|=|->|\||\t)\W{0,4}(?:\\?(?:boxed|text)\{)?"
    marked = rf"^\s*####\s*{whole}\s*$"  # as GSM8K ends its solutions
    told = re.compile(rf"{_SAYS}\w*(?:{between}|>|,\"?){whole}|{marked}", re.IGNORECASE)
    said = re.compile(rf"{_SAYS}\w*\W{{0,3}}(?:is|was|:|=)\W{{0,3}}$", re.IGNORECASE)
    before = ""
    for line in (_GROUPED.sub("", text) if answer.isdigit() else text).splitlines():
        if answer.lower() in line.lower() and (told.search(line) or (said.search(before) and _only(line, answer))):
            return True
        before = line if line.strip() else before
    return False


def _only(line: str, answer: str) -> bool:
    """Whether the line is the answer, apart from marks around it."""
    return line.strip(" \t*_`\"'$.()[]") == answer


def found_in(texts: Mapping[str, str], secrets: Iterable[Secret], answer: str | None, prompt: str) -> list[str]:
    """What of the secrets is where, as sentences; a place that the prompt names is meant to be read."""
    wanted, found = [secret for secret in secrets if secret.counts], []
    for name, text in texts.items():
        if name.startswith("/") and (name in prompt or re.search(rf"(?<![\w/.]){re.escape(name[1:])}\b", prompt)):
            continue
        found += [f"{secret.name} is in {name}" for secret in wanted if holds(text, secret)]
        if answer is not None and (name != NAMES or len(answer) >= _LEAST_WHOLE) and says_answer(text, answer, name):
            found.append(f"the answer is in {name}")
    return found
