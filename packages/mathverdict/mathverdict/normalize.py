r"""Brings an answer into one notation: the LaTeX that `grammar` and math-verify read, from LaTeX, plain text, unicode.

Invariant: the meaning of an expression never changes, only marks that say nothing (colours, fonts around formulas,
empty groups, `$`), wrappers, spacing, typography and the names of functions and symbols. What stands inside a mark
stays, in its place. Applied to the reference and to the answer alike.
"""

import re
import unicodedata
from functools import lru_cache

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_VULGAR = re.compile(r"(?:(?<!\d)(?P<whole>\d+)\s*)?(?P<part>[¼½¾⅐-⅞])")
_FRACTIONS = {
    part: rf"\frac{{{unicodedata.normalize('NFKC', part).replace('⁄', '}{')}}}" for part in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}
_ROOT = re.compile(
    r"(?:(?P<sign>[√∛∜])\s*|(?<![A-Za-z\\])(?P<name>sqrt|cbrt)\s*(?=\())(?:(?P<open>\()|(?P<one>\w+|\\[a-z]+))"
    r"|\\.|[()]",
    re.DOTALL,
)
_ROOT_SIGN = re.compile("[√∛∜]|sqrt|cbrt")
_ROOT_NAMES = {"√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]", "sqrt": r"\sqrt", "cbrt": r"\sqrt[3]"}
# ruff: noqa: RUF001 - characters that look like others are the purpose of these tables
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-",
    "×": r"\cdot ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "∗": r"\cdot ", "÷": "/", "⁄": "/", "∕": "/",
    "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≃": r"\approx ",
    "≡": r"\equiv ", "∠": r"\angle ", "△": r"\triangle ", "⊥": r"\perp ", "∥": r"\parallel ",
    "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "∖": r"\setminus ",
    "±": r"\pm ", "∓": r"\mp ", "°": r"^{\circ}", "′": "'", "’": "'", "→": r"\to ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}", "ℕ": r"\mathbb{N}", "ℂ": r"\mathbb{C}",
    "∫": r"\int ", "∑": r"\sum ", "∏": r"\prod ", "∧": r"\wedge ", "∨": r"\vee ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "θ": r"\theta ",
    "λ": r"\lambda ", "μ": r"\mu ", "π": r"\pi ", "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ",
    "ω": r"\omega ", "Δ": r"\Delta ", "Σ": r"\Sigma ", "Ω": r"\Omega ", "ϕ": r"\phi ", "⌊": r"\lfloor ",
    "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
}  # fmt: skip
_TABLE = str.maketrans(_SYMBOLS)
_DEGREE_ARGUMENT = re.compile(r"(\\(?:sin|cos|tan|cot|sec|csc)\s*[({]?\s*)(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_SPACING = re.compile(
    r"(?<!\\)\\(?:[,;:!> ]|quad\b|qquad\b|enspace\b|hspace\{[^{}]*\}|displaystyle\b|textstyle\b|limits\b)|~"
)
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])\.?")
_EMPTY_SET = re.compile(r"^\\\{\s*\\\}$")
_SIZED = re.compile(r"\\[dtc](frac|binom)(?![a-zA-Z])")
_OUTWARD = re.compile(
    r"(?:(?<=^)|(?<=\\cup)|(?<=\\in)|(?<==))(?P<space>\s*)(?P<open>[\[\]])(?P<ends>[^\[\],;]+[,;][^\[\]]+)(?P<close>[\[\]])"
    r"(?=\s*(?:$|\\cup))"
)
_SIGNED_REALS = re.compile(r"(\\mathbb\s*\{?\s*[RQZ]\s*\}?\s*(?:\^\{?\+\}?)?[_^])\s*([-+*])")
_BRACKETED_ARRAY = re.compile(
    r"[(\[]\s*(\\begin\{(?P<name>array|matrix|smallmatrix)\}.*\\end\{(?P=name)\})\s*[)\]]", re.DOTALL
)
_FONTS = re.compile(
    r"\\(?:mathrm|mathbf|mathit|mathsf|boldsymbol|bm|textbf|textit|textrm|operatorname\*?|mbox|emph|mathsf|textsf|texttt|"
    r"textnormal|underline|rm|bf)\s*\{([^{}]*)\}"
)
_FUNCTION_TEXT = re.compile(
    r"\\text\{\s*(sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|lg|exp|gcd|lcm|max|Re|Im|min(?=\s*\}\s*[({_\\]))\s*\}"
)
_NUMBER_TEXT = re.compile(r"\\text\{\s*([+-]?\d[\d,.]*)\s*\}")
_DOTTED = re.compile(r"\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?")
_CHOSEN = re.compile(r"(?:\{\s*\}\s*)?[_^]\s*\{?(?P<n>\d+)\}?\s*C\s*_\s*\{?(?P<k>\d+)\}?")
_STACKED = re.compile(r"(?:\{|(?<=^))([^{}]+)\\(choose|over)(?![A-Za-z])([^{}]+)(?:\}|(?=$))")
_RECURS = re.compile(r"^(-?\d+\.\d{0,20}?)(?:(\d)\2{2,}|(\d{2,6})\3+)\s*(?:\.\.\.|\\[lc]?dots)$", re.ASCII)
_MAGNITUDES = {
    "hundred": "10^{2}", "thousand": "10^{3}", "million": "10^{6}", "billion": "10^{9}", "trillion": "10^{12}",
    "dozen": "12",
}  # fmt: skip
_MAGNITUDE = re.compile(
    rf"(?<=\d)\s*(?P<open>\\text\{{\s*)?(?P<name>{'|'.join(_MAGNITUDES)})s?(?![A-Za-z])\s*(?P<close>\}})?"
)
_QUANTIFIER = re.compile(
    r"\s*,?\s*(?:\\text\{\s*,?\s*for (?:all|every|any|each)\s*\}|\\forall(?![A-Za-z])|\bfor (?:all|every|any|each)\b)"
    r"\s*(?:(?:real|positive|integers?|numbers?|values? of|natural|nonnegative)\s+)*\(?\s*\$?(?P<name>[a-z])\$?"
    r"(?:\s*\\in\s*\\mathbb\s*\{?\s*[RZNQ]\s*\}?\s*(?:[\^_]\s*\{?\s*[+*>0]+\s*\}?)?)?\s*$"
)
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"), ("__", "__"))
_SAYING = r"(?:(?:the\s+)?(?:final\s+)?(?:answer|result|solution)\s*(?:is\s*:?|:|=)|there (?:is|are)|it is)"
_ANSWER_IS = re.compile(rf"(?i)^(?:\\(?:text|math)\w*\s*\{{\s*{_SAYING}\s*\}}|{_SAYING}(?![A-Za-z]))\s*(?!not\b|no\b)")
_LEADS = re.compile(
    r"^(?:(?:both|either)\s+|the\s+(?:point|pair|triple|vector|set|interval)\s+(?=[({\[]|\\[{l])|\\implies\s*|\\Rightarrow\s*|(?:approximately|about|exactly)\s+"
    r"|\\approx\s*|\+\s*(?=[\w\\(.])|\\therefore\s*|=\s*|:\s*)+",
    re.IGNORECASE,
)
_JOINING = re.compile(
    r"\s*,?\s*(?:\\text\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z]))\s*", re.IGNORECASE
)
_PLAIN_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])(sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|gcd|lcm)(?![A-Za-z])"
)
_PLAIN_NAME = re.compile(
    r"(?<![A-Za-z\\])(pi|alpha|beta|gamma|delta|theta|lambda|phi|omega|infty|infinity|inf|oo"
    r"|(?<=[)\]A-Z])(?:cup|cap)|(?<=[)\]A-Z] )(?:cup|cap))(?![A-Za-z])"
)
_NAMES = {"infinity": "infty", "inf": "infty", "oo": "infty"}
_OTHER_NAMES = {
    "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]", "lvert": "|", "rvert": "|", "div": "/",
    "leq": r"\le", "geq": r"\ge", "leqslant": r"\le", "geqslant": r"\ge", "neq": r"\ne", "varnothing": r"\emptyset",
    "land": r"\wedge", "lor": r"\vee", "lnot": r"\neg", "rightarrow": r"\to", "overrightarrow": r"\vec",
    "given": r"\mid", "vert": "|", "times": r"\cdot", "ast": r"\cdot", "lt": "<", "gt": ">",
}  # fmt: skip
_RENAMED = re.compile(rf"\\({'|'.join(_OTHER_NAMES)})(?![a-zA-Z])")
_INVERSE = re.compile(r"(?<![A-Za-z\\])(?:asin|acos|atan)(?![A-Za-z])")
_POWER_NUMBER = re.compile(r"\^\s*([+-]?\d+(?:\.\d+)?)(?![\d}])")
_LONGEST = 4000
_COLOR = re.compile(r"\\(?:(?:text)?color|tag|label)\s*\{\w*\}\s*|\\(?:displaystyle|mathstrut)(?![A-Za-z])\s*")
_EMPTY = re.compile(r"\\text\s*\{\s*\}|(?<![\\_^}])\{\s*\}")
_FONT = re.compile(r"\\(?P<name>mathrm|mathbf|mathit|mathsf|boldsymbol|bm|pmb|mathop|textbf|textrm|text|fbox)\s*(?=\{)")
_NESTED = re.compile(r"\{[^{}]*\{")
_MOST_FONTS = 50
_INLINE = re.compile(r"(?<!\\)\$(?=[^\s$])((?:[^$\\]|\\.)+)(?<!\s)\$(?![\d$])|\\\(((?:[^\\]|\\[^()])+)\\\)", re.DOTALL)
_DOLLAR = re.compile(r"(?<!\\)\$")
_BACKSLASHES = re.compile(r"\\+")
_DOUBLED = re.compile(r"\\\\(?:[A-Za-z]{2}|[$%{(\[])")
_LETTER = re.compile(r"\\(?:mathsf|mathrm|mathbf|mathit)\s+([A-Za-z])(?![A-Za-z])")
_UNIT_VECTOR = re.compile(
    r"\\hat\s*(?:\{\s*\\(?:mathbf|text|mathrm|boldsymbol)\s*\{\s*([ijk])\s*\}\s*\}|\{\s*\\?([ijk])(?:math)?\s*\}"
    r"|\s([ijk])(?![A-Za-z]))"
)


def unescaped(text: str) -> str:
    r"""`\frac{1}{2}` for `\\frac{1}{2}`, as programs print it: where every backslash is doubled."""
    if not _DOUBLED.search(text) or any(len(run) % 2 for run in _BACKSLASHES.findall(text)):
        return text
    return text.replace("\\\\", "\\")


def unwrap(text: str) -> str:
    """`text` without what stands around an answer: math delimiters, emphasis, closing punctuation."""
    text = _INVISIBLE.sub("", text).strip()
    while True:
        before = text
        for opening, closing in _WRAPPERS:
            inner = text[len(opening) : -len(closing)]
            if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
                text = text if opening in inner.replace(r"\$", "") else inner.strip()
        if text[-1:] in {".", ",", ";", "。"} and not text.endswith(".."):
            text = text[:-1].rstrip(",;。 \t\n").removesuffix("\\").rstrip()
        if text == before:
            return text


def without_lead(text: str) -> str:
    """`text` without "the answer is" before it."""
    return unwrap(_ANSWER_IS.sub("", unwrap(text)))


@lru_cache(maxsize=256)
def normalize(text: str) -> str:
    """`text` in the one notation; idempotent for what it produces."""
    text = unwrap(without_marks(without_math_marks(text)))
    text = _VULGAR.sub(lambda found: (found["whole"] or "") + _FRACTIONS[found["part"]], text)
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + run[0].translate(_SUBSCRIPTS) + "}", text)
    text = unicodedata.normalize("NFKC", text.translate(_TABLE))
    text = re.sub(r"(?<=\d)\\!\s*(?=[,{])|(?:(?<=\d,)|(?<=,\}))\\!\s*(?=\d)", "", text)
    text = re.sub(r"\{,\}(?=\d{3}(?!\d))", "", text).replace("{,}", ".")
    # A space command between groups of three digits is a thousands separator.
    text = re.sub(r"(?<=\d)\\[,;!: ]\s*(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\\text\{\s*:\s*\}|\\colon(?![A-Za-z])|\{:\}|\s*\\text\{\s*such that\s*\}", ":", text)
    text = " ".join(_SPACING.sub(" ", text).split())
    text = _EMPTY_SET.sub(r"\\emptyset", _SIZES.sub("", text))
    text = _SIZED.sub(r"\\\1", text)
    text = _SIGNED_REALS.sub(r"\1{\2}", text)
    text = _OUTWARD.sub(
        lambda found: found["space"] + "[("[found["open"] == "]"] + found["ends"] + "])"[found["close"] == "["], text
    )
    text = _BRACKETED_ARRAY.sub(r"\1", text)
    text = _RENAMED.sub(lambda found: _OTHER_NAMES[found[1]], text)
    text = _FONTS.sub(lambda found: rf"\text{{{found[1]}}}", text)
    text = _NUMBER_TEXT.sub(r"\1", text)
    text = _FUNCTION_TEXT.sub(r"\\\1 ", text)
    text = _CHOSEN.sub(lambda found: rf"\binom{{{found['n']}}}{{{found['k']}}}", text)
    text = _STACKED.sub(
        lambda found: rf"\{'binom' if found[2] == 'choose' else 'frac'}{{{found[1]}}}{{{found[3]}}}", text
    )
    text = _RECURS.sub(lambda found: rf"{found[1]}\overline{{{found[2] or found[3]}}}", text)
    text = _DOTTED.sub(lambda found: rf"\overline{{{''.join(part or '' for part in found.groups())}}}", text)
    text = _QUANTIFIER.sub("", text)
    text = _JOINING.sub(", ", text)
    text = _MAGNITUDE.sub(_multiplied, text)
    text = _plain(text)
    while (shorter := unwrap(_LEADS.sub("", text))) != text:
        text = shorter
    return "e" if text == "E" else re.sub(r"\s+", " ", text).strip()


def _multiplied(found: "re.Match[str]") -> str:
    factor = rf"\cdot {_MAGNITUDES[found['name']]}"
    if found["open"] and not found["close"]:
        return factor + r"\text{"
    return factor + (" " if found["open"] else found["close"] or " ")


def _plain(text: str) -> str:
    text = text.replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    text = re.sub(r"(?<!\\)\*", r"\\cdot ", text)
    text = _INVERSE.sub(lambda found: "arc" + found[0][1:], text)
    text = _with_roots(text)
    text = _PLAIN_FUNCTION.sub(r"\\\1", text)
    text = _PLAIN_NAME.sub(lambda found: "\\" + _NAMES.get(found[1], found[1]) + " ", text)
    # math-verify takes 60 degrees for the number 60, which is right for an answer and wrong for an argument.
    return _POWER_NUMBER.sub(r"^{\1}", _DEGREE_ARGUMENT.sub(r"\1\\frac{\2\\pi}{180}", text))


def _with_roots(text: str) -> str:
    closing: list[str] = []

    def kept(found: "re.Match[str]") -> str:
        if sign := found["sign"] or found["name"]:
            if found["open"]:
                closing.append("}")
            return _ROOT_NAMES[sign] + ("{" if found["open"] else f"{{{found['one']}}}")
        if found[0] == "(":
            closing.append(")")
        return closing.pop() if found[0] == ")" and closing else found[0]

    return _ROOT.sub(kept, text) if _ROOT_SIGN.search(text) else text


def without_marks(text: str) -> str:
    if len(text) > _LONGEST:
        return text
    text = _COLOR.sub("", text)
    text = _UNIT_VECTOR.sub(lambda found: rf"\text{{{found[1] or found[2] or found[3]}}}", _EMPTY.sub("", text))
    text = _LETTER.sub(r"\1", text)
    # Off comes the font around a formula; it stays around what holds no other braces, and `\text` for units.
    position, left = 0, _MOST_FONTS
    while found := _FONT.search(text, position):
        position = found.end()
        if found["name"] in {"text", "textrm", "fbox"} or not _NESTED.match(text, position):
            continue
        end, left = closing_bracket(text, position), left - 1
        if end is None or not left:
            break
        inner = text[position + 1 : end]
        name = r"\text" if found["name"] == "mathrm" and re.match(r"\s*[A-Za-z]", inner) else ""
        text = f"{text[: found.start()]}{name}{{{inner}}}{text[end + 1 :]}"
        position = found.start() + len(name)
    return text


def without_math_marks(text: str) -> str:
    """A text without the `$` around its formulas; those of currencies stay."""
    return text if len(_DOLLAR.findall(text)) % 2 else _INLINE.sub(lambda found: found[1] or found[2], text)


def closing_bracket(text: str, opening: int) -> int | None:
    """Return where the bracket or brace at `opening` closes; what a backslash stands before is neither."""
    depth, index = 0, opening
    closes = {"{": "}", "(": ")"}[text[opening]]
    while index < len(text):
        depth += (text[index] == text[opening]) - (text[index] == closes)
        if depth == 0:
            return index
        index += 2 if text[index] == "\\" else 1
    return None
