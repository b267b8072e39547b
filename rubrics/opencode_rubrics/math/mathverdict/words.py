r"""Answers in words and letters: "no", `\text{Monday}`, choices such as "(B)".

Invariant: words are compared as words. As mathematics "no" would be n·o, and therefore equal to "on".
"""

import re

_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|textrm|mbox|emph)\s*\{([^{}]*)\}")
_SHORT_WORDS = frozenset({"no", "if", "up", "on", "in", "so", "ok", "is", "it", "he", "we", "us", "go"})
_FUNCTION_NAMES = (
    "sin cos tan cot sec csc log exp sqrt cbrt arcsin arccos arctan asin acos atan sinh cosh tanh alpha beta gamma "
    "delta theta lambda phi omega infinity inf and mod gcd lcm min max det cup cap cdot frac"
)
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split(" "))
_WORDS = re.compile(r"[^\W\d_][\w\s'’.,:!?&/-]*")  # noqa: RUF001
_PUNCTUATION = re.compile(r"[^\w\s-]")
_ARTICLES = re.compile(r"^(?:the|an?|it is|it's)\s+")
_CHOICE = re.compile(r"(?:(?:option|choice|answer)\s+)?\(?\s*([A-J])\s*[).:]?", re.IGNORECASE)
_CHOICE_WITH_TEXT = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\(\s*([A-J])\s*\)|([A-J])\s*[).:])\s*\S.*", re.DOTALL
)


def _bare(text: str) -> str:
    return " ".join(_TEXT.sub(r"\1", text).replace("$", " ").replace("\\ ", " ").replace("~", " ").split())


def as_words(text: str) -> str | None:
    """The text in comparable form if it is words, `None` if it may be mathematics."""
    bare = _bare(text)
    if not _WORDS.fullmatch(bare):
        return None
    runs = re.findall(r"[^\W\d_]+", bare)
    marked = r"\text" in text and len(max(runs, key=len)) > 1
    if not marked and not any(_is_word(run) for run in runs):
        return None
    words = " ".join(_PUNCTUATION.sub(" ", bare.casefold()).replace("-", " ").split())
    return _ARTICLES.sub("", words)


def _is_word(run: str) -> bool:
    lower = run.casefold()
    return (len(run) > 2 and lower not in _FUNCTIONS) or lower in _SHORT_WORDS


def as_choice(text: str) -> str | None:
    """The letter A…J of a reference that is one choice, such as "(B)" or `\\textbf{(B)}`."""
    found = re.fullmatch(r"\(?\s*([A-J])\s*[).]?", _bare(text))
    return found[1] if found else None


def same_choice(letter: str, answer: str) -> bool:
    """Whether the answer names the choice `letter`, alone or followed by the choice's text."""
    bare = _bare(answer)
    found = _CHOICE.fullmatch(bare) or _CHOICE_WITH_TEXT.fullmatch(bare)
    return bool(found) and next(group for group in found.groups() if group).upper() == letter  # type: ignore[union-attr]
