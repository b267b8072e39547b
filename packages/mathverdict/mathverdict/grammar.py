r"""Reads one spelled expression into a tree, strictly.

Invariant: the whole text is read or `Unparsable` is raised; nothing is skipped but white space. Where notation is
ambiguous the reading is fixed: products without a sign bind like those with one ("1/2x" is half of x), a function
without brackets takes the product behind it, and a letter before brackets multiplies, except for the usual names of
functions and before figures alone: I(0).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .errors import Unparsable

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
_DERIVATIVE = re.compile(
    r"\\frac\s*\{\s*d\s*(?P<top>\w*)\s*\}\s*\{\s*d\s*(?P<bottom>[A-Za-z])\s*\}"
    r"|(?<![A-Za-z\\])d(?P<t>[A-Za-z])\s*/\s*d(?P<b>[A-Za-z])(?![A-Za-z])"
)
_TOKEN = re.compile(
    r"\s+|(?P<derivative>\x00\w*/\w\x00)|(?P<number>\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+\.\d*|\.\d+|\d+)"
    r"|\\text\s*\{\s*(?P<word>[A-Za-z]+)\s*\}|\\(?P<command>[A-Za-z]+|\|)|(?P<letter>[^\W\d_])"
    r"|(?P<sign>[-+/^_!%'|,()\[\]{}=])|\\(?P<percent>%)",
    re.ASCII,
)
_MAX_TOKENS = 800
_MAX_NESTING = 60
_CLOSING = {"(": ")", "[": "]", "{": "}", "lfloor": "rfloor", "lceil": "rceil"}
_FUNCTION_LETTERS = frozenset("fghFGHP")


@dataclass(frozen=True)
class Node:
    """One operation, number or name.

    `kind` is "number" (`value`), "symbol" or "constant" (`name`), "add", "multiply", "divide", "negate", "power",
    "call" (`name` is a known function), "opaque" (a function that nothing is known about) or "sum" and "prod"
    (`name` is the index; the arguments are its bounds and the body).
    """

    kind: str
    args: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    rounded: bool = False


def number(value: Fraction | int, rounded: bool = False) -> Node:
    return Node("number", value=Fraction(value), rounded=rounded)


def walk(node: Node) -> Iterator[Node]:
    yield node
    for arg in node.args:
        yield from walk(arg)


def symbols(node: Node) -> frozenset[str]:
    """Names of the free variables."""
    inside = frozenset().union(*(symbols(arg) for arg in node.args))
    if node.kind == "symbol":
        return inside | {node.name}
    return inside - {node.name} if node.kind in {"sum", "prod"} else inside


def is_rounded(node: Node) -> bool:
    """Whether a decimal is part of the expression."""
    return any(part.rounded for part in walk(node))


def parse(text: str) -> Node:
    """The tree of a spelled expression; `Unparsable` if it is not one, in whole, or is too long."""
    tokens = tokens_of(text)
    if not tokens or len(tokens) > _MAX_TOKENS:
        raise Unparsable(text)
    reader = _Reader(tokens)
    node = reader.sum()
    if reader.peek() is not END:
        raise Unparsable(text)
    return node


class Token(NamedTuple):
    """`kind` is "number", "letter", "command", "derivative" or the character itself."""

    kind: str
    text: str


END = Token("end", "")


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
        kind = match.lastgroup
        if kind is None:
            continue
        name = match[kind]
        if kind == "word" and len(name) > 1 and name not in FUNCTIONS:
            raise Unparsable(name)
        if kind == "word":
            kind = "letter" if len(name) == 1 else "command"
        found.append(Token(name if kind in {"sign", "percent"} else kind, name))
    return found


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self.at = 0
        self._depth = 0
        self._bars = 0
        self._indices: set[str] = set()

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

    def takes(self, *names: str) -> bool:
        """Whether the next token is one of these, which is then behind us."""
        seen = self.sees(*names)
        self.at += seen
        return seen

    def raw(self) -> str:
        """The text of a group or token, as a part of a name."""
        token = self.next()
        if token is END:
            raise Unparsable("a name")
        if token.kind != "{":
            return token.text
        parts = []
        while not self.takes("}"):
            parts.append(self.raw())
        return "".join(parts)

    def sum(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise Unparsable("nested too deeply")
        terms = [self._signed(self._term)]
        while self.sees("+", "-"):
            terms.append(self._signed(self._term))
        self._depth -= 1
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def _signed(self, read: Callable[[], Node]) -> Node:
        if self.sees("+", "-"):
            return Node("negate", (read(),)) if self.next().kind == "-" else read()
        return read()

    def _term(self) -> Node:
        left = self._first_factor()
        while True:
            if self.takes("cdot"):
                left = Node("multiply", (left, self._signed(self._factor)))
            elif self.takes("/", "div"):
                left = Node("divide", (left, self._signed(self._factor)))
            elif self.sees("bmod", "cap", "cup", "setminus"):
                name = self.next().text
                left = Node("call" if name == "bmod" else "opaque", (left, self._factor()), name)
            elif self._starts_factor():
                left = Node("multiply", (left, self._factor()))
            else:
                return left

    def _first_factor(self) -> Node:
        whole = self.peek()
        left = self._factor()
        if whole.kind != "number" or left.kind != "number" or left.rounded or not self.sees("frac"):
            return left
        start = self.at
        part = self._factor()
        plain = part.kind == "divide" and all(arg.kind == "number" for arg in part.args)
        if plain and part.args[0].value < part.args[1].value and left.value.denominator == 1:
            return Node("add", (left, part))
        self.at = start
        return left

    def _starts_factor(self) -> bool:
        token = self.peek()
        if token.kind == "number":
            # A number multiplies only behind a factorial and the imaginary unit, or as a power behind a group, and
            # behind a letter if the exponent has one: "4 2" is not 8, and "x2^3" may be the cube of x_2.
            last = self.peek(-1)
            power = self.peek(1).kind == "^" and (last.kind in {"}", ")"} or self._has_letters_in_exponent())
            return last.kind == "!" or last == Token("letter", "i") or power
        if token.kind == "|":
            return self._bars == 0
        if token.kind == "command":
            return token.text not in {"rfloor", "rceil", "cdot", "mid"}
        return token.kind in {"letter", "derivative", "(", "[", "{"}

    def _has_letters_in_exponent(self) -> bool:
        ahead = 2
        while self.peek(ahead).kind not in {"letter", "}", "end"} and (ahead == 2 or self.peek(2).kind == "{"):
            ahead += 1
        return self.peek(ahead).kind == "letter" and self.peek(-1).kind in {"letter", "command"}

    def _holds_figures(self) -> bool:
        ahead = 1
        while self.peek(ahead).kind in {"number", "+", "-", ","}:
            ahead += 1
        return self.sees("(") and ahead > 1 and self.peek(ahead).kind == ")"

    def _factor(self) -> Node:
        node = self._atom()
        while True:
            if self.takes("^"):
                node = self._power(node)
            elif self.takes("!"):
                node = Node("call", (node,), "double_factorial" if self.takes("!") else "factorial")
            elif self.sees("'", "_") and node.kind == "symbol":
                mark = self.next().kind
                node = Node("symbol", name=node.name + mark + (self.raw() if mark == "_" else ""))
            elif node.kind == "symbol" and self._holds_figures():
                node = Node("opaque", self._arguments(), node.name)
            else:
                return node

    def _power(self, base: Node) -> Node:
        if self.sees("circ") or (self.sees("{") and self.peek(1).text == "circ" and self.peek(2).kind == "}"):
            self.raw()
            return Node("divide", (Node("multiply", (base, Node("constant", name="pi"))), number(180)))
        return Node("power", (base, self._script()))

    def _script(self) -> Node:
        if self.sees("{"):
            return self._group()
        token = self.peek()
        if token.kind == "number" and token.text.isdigit():
            # Behind `^` and `\\frac` LaTeX takes one digit of a number.
            self._tokens[self.at : self.at + 1] = [
                Token("number", text) for text in (token.text[0], token.text[1:]) if text
            ]
        return self._atom(single=True)

    def _group(self) -> Node:
        closing = _CLOSING[self.next().text]
        bars, self._bars = self._bars, 0
        node = self.sum()
        self._bars = bars
        self.expect(closing)
        return node

    def _arguments(self) -> tuple[Node, ...]:
        self.expect("(")
        bars, self._bars = self._bars, 0
        found = [self.sum()]
        while self.takes(",", "mid"):
            found.append(self.sum())
        self._bars = bars
        self.expect(")")
        return tuple(found)

    def _atom(self, single: bool = False) -> Node:
        token = self.peek()
        if token.kind in {"(", "[", "{"}:
            return self._group()
        if token.kind == "|":
            self.next()
            self._bars += 1
            node = self.sum()
            self.expect("|")
            self._bars -= 1
            return Node("call", (node,), "abs")
        if token.kind == "number":
            text = self.next().text.replace(",", "").removesuffix(".")
            return number(Fraction(text), rounded="." in text)
        self.next()
        if token.kind == "letter":
            if token.text in {"e", "i"} - self._indices:
                return Node("constant", name=token.text)
            if not single and token.text in _FUNCTION_LETTERS and self.sees("("):
                return Node("opaque", self._arguments(), token.text)
            return Node("symbol", name=token.text)
        if token.kind == "derivative":
            return Node("symbol", name=f"d{token.text}")
        if token.kind == "command":
            return self._command(token.text)
        raise Unparsable(token.text)

    def _command(self, name: str) -> Node:
        if name in SYMBOLS:
            return Node("symbol", name=name)
        if name in {"pi", "infty"}:
            return Node("constant", name=name)
        if name in {"frac", "binom"}:
            pair = (self._script(), self._script())
            return Node("divide", pair) if name == "frac" else Node("call", pair, "binomial")
        if name == "sqrt":
            index = self._group() if self.sees("[") else number(2)
            return Node("call", (self._script(), index), "root")
        if name in FUNCTIONS:
            return self._function(name)
        if name in {"sum", "prod"}:
            return self._series(name)
        if name in {"lfloor", "lceil"}:
            self.at -= 1
            return Node("call", (self._group(),), "floor" if name == "lfloor" else "ceiling")
        if name in MARKS:
            letters = self.raw() if self.sees("{") else ""
            while not letters or (name in {"angle", "triangle", "measuredangle"} and self.sees("letter")):
                if not self.sees("letter", "number", *SYMBOLS):
                    raise Unparsable(name)
                letters += self.next().text
            if name in {"angle", "overline", "measuredangle", "overleftrightarrow"}:
                letters = min(letters, letters[::-1])
            return Node("symbol", name=f"{name} {letters}")
        raise Unparsable(name)

    def _function(self, name: str) -> Node:
        base, power = None, None
        if name == "log" and self.sees("_"):
            self.next()
            base = self._script()
        if self.takes("^"):
            power = self._script()
        if name in {"gcd", "lcm", "max", "min"}:
            return Node("call", self._arguments(), name)
        inverse = power is not None and power.kind == "negate" and power.args[0] == number(1)
        if inverse:
            name, power = (f"arc{name}", None) if f"arc{name}" in FUNCTIONS else (name, power)
        argument = self._group() if self.sees("(", "{", "[") else self._open_argument()
        kind = "opaque" if name in OPAQUE_FUNCTIONS else "call"
        node = Node(kind, (argument,) if base is None else (argument, base), name)
        return node if power is None else Node("power", (node, power))

    def _open_argument(self) -> Node:
        node = self._signed(self._factor)
        while self._starts_factor() and not self.sees(*FUNCTIONS, *COMMUTING, "sum", "prod", "bmod", "setminus"):
            node = Node("multiply", (node, self._factor()))
        return node

    def _series(self, kind: str) -> Node:
        self.expect("_")
        self.expect("{")
        index = self.next()
        self.expect("=")
        low = self.sum()
        self.expect("}")
        self.expect("^")
        high = self._script()
        if index.kind != "letter":
            raise Unparsable(index.text)
        outside, self._indices = self._indices, self._indices | {index.text}
        body = self._term()
        self._indices = outside
        return Node(kind, (low, high, body), index.text)
