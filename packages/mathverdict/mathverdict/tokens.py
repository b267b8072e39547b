r"""Splits spelled LaTeX into tokens, and says which commands are functions, constants and symbols.

Invariant: a command, word or character that is not known here makes the whole text unparsable; nothing is skipped but
white space.
"""

import re
from typing import NamedTuple

from .tree import Unparsable

_FUNCTION_NAMES = (
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth arcsinh arccosh arctanh "
    "ln log lg exp gcd lcm max min det arg Re Im deg dim ker"
)
FUNCTIONS = frozenset(_FUNCTION_NAMES.split(" "))
OPAQUE_FUNCTIONS = frozenset({"det", "arg", "deg", "dim", "ker", "Re", "Im"})
COMMUTING = frozenset({"cap", "cup"})
_SYMBOL_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar"
)
SYMBOLS = frozenset(_SYMBOL_NAMES.split(" "))
_MARK_NAMES = (
    "overline vec hat bar tilde widehat widetilde overrightarrow overleftrightarrow overarc mathbb mathcal mathfrak "
    "mathscr angle triangle odot square measuredangle"
)
MARKS = frozenset(_MARK_NAMES.split(" "))
"""Commands that make a name of the letters behind them."""
_DERIVATIVE = re.compile(
    r"\\frac\s*\{\s*d\s*(?P<top>\w*)\s*\}\s*\{\s*d\s*(?P<bottom>[A-Za-z])\s*\}"
    r"|(?<![A-Za-z\\])d(?P<t>[A-Za-z])\s*/\s*d(?P<b>[A-Za-z])(?![A-Za-z])"
)
_TOKEN = re.compile(
    r"\s+|(?P<derivative>\x00\w*/\w\x00)"
    r"|(?P<recurring>\d+\.\d*\\overline\s*\{\s*\d+\s*\})"
    r"|(?P<number>\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+\.\d*|\.\d+|\d+)"
    r"|\\text\s*\{\s*(?P<word>[A-Za-z]+)\s*\}"
    r"|\\(?P<command>[A-Za-z]+|\|)"
    r"|(?P<letter>[^\W\d_])"
    r"|(?P<sign>[-+/^_!%'|,()\[\]{}=])"
    r"|\\(?P<percent>%)",
    re.ASCII,
)


class Token(NamedTuple):
    """`kind` is "number", "recurring", "letter", "command", "derivative" or the character itself."""

    kind: str
    text: str


END = Token("end", "")
"""Behind the last token."""


class Stream:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token that `next` will give, or one further on (or back)."""
        index = self.at + ahead
        return self._tokens[index] if index < len(self._tokens) else END

    def next(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, kind: str) -> None:
        token = self.next()
        if kind not in (token.kind, token.text):
            raise Unparsable(token.text)

    def sees(self, *names: str) -> bool:
        """Whether the next token is one of these characters or commands."""
        token = self.peek()
        return token.kind in names or (token.kind == "command" and token.text in names)

    def split_digit(self) -> None:
        r"""Make the first digit of a number a token of its own, as LaTeX does behind `^` and `\frac`."""
        token = self.peek()
        if token.kind == "number" and len(token.text) > 1:
            if not token.text.isdigit():
                raise Unparsable(token.text)
            self._tokens[self.at : self.at + 1] = [Token("number", token.text[0]), Token("number", token.text[1:])]

    def raw(self) -> str:
        """The text of a group or token, as a part of a name."""
        token = self.next()
        if token is END:
            raise Unparsable("a name")
        if token.kind != "{":
            return token.text
        parts, depth = [], 1
        while depth:
            token = self.next()
            if token is END:
                raise Unparsable("}")
            depth += (token.kind == "{") - (token.kind == "}")
            parts.append(token.text if depth else "")
        return "".join(parts)


def tokens_of(text: str) -> list[Token]:
    """The tokens of a spelled expression; `Unparsable` if something in it is unknown."""
    text = _DERIVATIVE.sub(lambda d: f"\0{d['top'] or d['t'] or ''}/{d['bottom'] or d['b']}\0", text)
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unparsable(text)
        position = match.end()
        if match.lastgroup is not None:
            found.append(_token(match.lastgroup, match[match.lastgroup]))
    return found


def _token(kind: str, text: str) -> Token:
    if kind == "word":
        if len(text) > 1 and text not in FUNCTIONS:
            raise Unparsable(text)
        return Token("letter" if len(text) == 1 else "command", text)
    return Token(text if kind in {"sign", "percent"} else kind, text)
