r"""Splits spelled LaTeX into tokens, and says which commands are functions, constants and symbols.

Invariant: a command, word or character that is not known here makes the whole text unparsable; nothing is skipped but
white space.
"""

import re
from typing import NamedTuple

from .tree import Unparsable

FUNCTIONS = frozenset(
    (
        "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth arcsinh arccosh arctanh "
        "ln log lg exp gcd lcm max min det arg Re Im deg dim ker"
    ).split()
)
OPAQUE_FUNCTIONS = frozenset({"det", "arg", "deg", "dim", "ker", "Re", "Im"})
COMMUTING = frozenset({"cap", "cup"})
SYMBOLS = frozenset(
    (
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
        "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar Pi Upsilon"
    ).split()
)
MARKS = frozenset(
    "overline vec hat bar tilde widehat widetilde overrightarrow overleftrightarrow overarc mathbb mathcal "
    "mathfrak mathscr angle triangle odot square measuredangle".split()
)
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
    spaced: bool = False
    """White space stands before it."""


def tokens_of(text: str) -> list[Token]:
    """The tokens of a spelled expression.

    Raises:
        Unparsable: Something in it is unknown.
    """
    text = _DERIVATIVE.sub(lambda d: f"\0{d['top'] or d['t'] or ''}/{d['bottom'] or d['b']}\0", text)
    found: list[Token] = []
    position, spaced = 0, False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unparsable(text)
        position = match.end()
        if match.lastgroup is None:
            spaced = True
            continue
        found.append(_token(match.lastgroup, match[match.lastgroup], spaced))
        spaced = False
    return found


def _token(kind: str, text: str, spaced: bool) -> Token:
    if kind == "word":
        if len(text) > 1 and text not in FUNCTIONS:
            raise Unparsable(text)
        return Token("letter" if len(text) == 1 else "command", text, spaced)
    if kind in {"sign", "percent"}:
        return Token(text, text, spaced)
    return Token(kind, text, spaced)
