"""What looks like a key is not shown: the rules by name, and how often each was used.

Rules read plain text and JSON alike: none of them reaches beyond the end of a string of JSON.
"""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

MASK = "[masked]"
SHORT = 1000
"""Bytes below which each word is looked for by itself."""
BLOCK = 1 << 20
_FACTOR, _SHIFT = np.uint32(2654435761), np.uint32(15)
_THREE = np.uint32(0xFFFFFF)


class Words:
    """ASCII words of at least three characters, of which most texts hold none: that is found fast.

    Looking for sixty words one by one takes longer than writing the page does. Of each word three bytes are chosen; a
    table says of any three bytes of a text whether they may be such ones, and only there a word is looked for.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = {word: word.encode() for word in sorted(words)}
        self._places: defaultdict[bytes, list[tuple[str, int]]] = defaultdict(list)
        self._table = np.zeros(1 << 17, dtype=bool)
        for word, spelled in self._words.items():
            at = max(range(len(spelled) - 2), key=lambda at: sum(not chr(c).islower() for c in spelled[at : at + 3]))
            three = spelled[at : at + 3]
            self._places[three].append((word, at))
            self._table[_hashed(np.frombuffer(three + b"\0", "<u4"))] = True

    def found_in(self, text: bytes) -> set[str]:
        """The words that stand in a text."""
        if len(text) < SHORT:
            return {word for word, spelled in self._words.items() if spelled in text}
        found: set[str] = set()
        for begin in range(0, len(text), BLOCK):
            block = text[begin : begin + BLOCK + 2] + b"\0\0\0\0"
            for shift in range(4):
                fours = np.frombuffer(block, "<u4", count=(len(block) - shift) // 4, offset=shift)
                for number in np.flatnonzero(self._table[_hashed(fours)]).tolist():
                    at = begin + shift + 4 * number
                    for word, before in self._places.get(text[at : at + 3], ()):
                        if word not in found and text.startswith(self._words[word], at - before) and at >= before:
                            found.add(word)
        return found


def _hashed(fours: np.ndarray) -> np.ndarray:
    """Where the table has the first three bytes of each four."""
    return ((fours & _THREE) * _FACTOR) >> _SHIFT


@dataclass(frozen=True, eq=False)
class Rule:
    """A kind of secret: around each of `hints` (small letters) `pattern` is searched, and its second group masked."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    whole: bool
    """Whether a secret may stand far from its hint, so that the whole text is searched."""


def _rule(name: str, hints: str, pattern: str, *, whole: bool = False, more: Sequence[str] = ()) -> Rule:
    return Rule(name, (*hints.split(), *more), re.compile(pattern), whole)


_COLOUR = r"(?:\x1b|\\{1,4}u001[bB])\[[0-9;]{0,16}[mK]"
"""As a terminal marks what was found, also in JSON."""
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4})|(?<=[0-9;\[][mK])|(?<=%[0-9a-fA-F]{2}))"
"""Where a word begins: also behind a line's end in JSON, a colour, or a sign in an address."""


def _begins(word: str) -> str:
    """A word that begins there: looked at first, as most places hold no such word, and that is seen faster."""
    return rf"(?={word}){_START}{word}"


_PEM = r"(?:[A-Za-z0-9+/=\s:,]|\\+[nrt]|-(?!----))"
_LINES = r"(?:[A-Za-z0-9+/=]{16,}+(?:\s|\\+[nrt])*+)++"
_QUOTE = rf"(?:[\\\"']|{_COLOUR}|\\{{1,4}}u002[27]|&(?:quot|#3[49]);|%2[27]){{0,8}}"
_IS = rf"{_QUOTE}\s{{0,4}}(?:[:=]|%3[AaDd]|\\{{1,4}}u003[AaDd])\s{{0,4}}{_QUOTE}"
_KEYS = ["api", "access", "account", "signing", "encryption", "deploy", "private", "master"]
_NAMED = (
    rf"(?:(?:{'|'.join(_KEYS)})[-_]?key|token(?!s)"
    r"|secret(?:[-_]?(?:access[-_]?)?key)?|credentials?|authorization)"
)
_PLAIN = [
    *("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "npm_", "pypi-", "dckr_pat_", "gsk_", "xai-", "pplx-"),
    *("r8_", "e2b_", "dtn_", "lsv2_pt_", "lsv2_sk_", "csk-", "lin_api_", "ntn_", "dop_v1_", "api_org_", "fw_"),
    *("shpat_", "shpss_", "AGE-SECRET-KEY-"),
]
"""Beginnings of keys that go on with at least sixteen letters and figures."""
_MARKED = ["glpat-", "glrt-", "gldt-", "nvapi-", "tvly-", "figd_", "hvs.", "ya29.", "GOCSPX-", "xapp-"]
"""Those that may go on with other signs."""
RULES = (
    _rule("private key", "private", rf"(-----BEGIN [A-Z ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----)({_PEM}++)", whole=True),
    # Lines outside of a key are passed over by the second branch, so that each is read once.
    _rule(
        "end of a private key", "private", rf"()(?:({_LINES})(?=-----END [A-Z ]{{0,40}}PRIVATE)|{_LINES})", whole=True
    ),
    _rule("bearer token", "bearer", r"(?i)(bearer(?:\s|%20){1,4})((?=\S{0,200}\d|\S{24})[A-Za-z0-9._~+/=-]{12,})"),
    _rule(
        "authorization header",
        "authorization",
        rf"(?i)(authorization{_IS}(?:basic|bearer|token|apikey|negotiate)\s{{1,4}})(?!\[)([^\s\"'\\]{{8,}})",
    ),
    _rule(
        "cookie",
        "cookie",
        rf"(?i)(cookie{_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE})([\w.-]{{1,64}}=[^\"'\\\r\n]{{8,}})",
        whole=True,
    ),
    _rule("sk- key", "sk-", rf"({_begins('sk-')})((?=[\w-]{{0,200}}\d)[A-Za-z0-9_-]{{16,}})"),
    _rule(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"({_begins('(?:gh[pousr]_|github_pat_)')})([A-Za-z0-9_]{{16,}})",
    ),
    _rule("Hugging Face token", "hf_", rf"({_begins('hf_')})([A-Za-z0-9]{{16,}})"),
    _rule("Prime key", "pit_", rf"({_begins('pit_')})([A-Za-z0-9]{{16,}})"),
    _rule("Google key", "aiza", rf"({_begins('AIza')})([A-Za-z0-9_-]{{20,}})"),
    _rule("AWS key", "akia asia", rf"({_begins('(?:AKIA|ASIA)')})([A-Z0-9]{{16}})(?![A-Za-z0-9])"),
    _rule(
        "Slack token",
        " ".join(f"xox{kind}-" for kind in "abeoprs"),
        rf"({_begins('xox[abeoprs]-')})([A-Za-z0-9-]{{10,}})",
    ),
    # By the first letter of what its header says first: alg, typ, kid, … What is not one is passed over, and read once.
    _rule(
        "JSON web token",
        " ".join(f"eyj{sign}" for sign in "h0rjl4q6pz"),
        rf"({_begins('eyJ')})([A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]*+)"
        rf"|{_begins('eyJ')}[A-Za-z0-9_-]*+",
    ),
    _rule(
        "token of another service",
        " ".join([*_PLAIN, *_MARKED, "sg. dapi key- :aa"]).lower(),
        rf"({_START}(?:(?:{'|'.join(map(re.escape, _PLAIN))})(?=[A-Za-z0-9]{{16}})|{'|'.join(map(re.escape, _MARKED))}"
        r"|SG\.(?=[\w-]{22}\.)|(?:dapi|key-)(?=[0-9a-f]{32})|\d{8,10}:(?=AA[\w-]{33})))"
        r"((?=[\w.-]{0,40}\d)[A-Za-z0-9_.-]{20,})",
    ),
    _rule(
        "webhook",
        "hooks.slack.com /webhooks/",
        r"((?:hooks\.slack\.com/services|/api/webhooks/\d{5,25})/)([\w/-]{20,})",
    ),
    _rule("password in an address", "://", r"(://[^\s/:@\"'\\]{0,64}:)([^\s/@\"'\\\[]{1,256})(?=@)"),
    _rule("token in an address", "://", r"(://)((?=[^@]{0,200}\d)[A-Za-z0-9_-]{20,256})(?=@)"),
    _rule(
        "key in an address",
        "key= sig= signature=",
        r"(?i)([?&;](?:amp;)?(?:\w{0,16}key|sig|(?:x-amz-)?signature)=)((?=[^\s&\"'\\]{0,80}\d)[\w\-./+=~%]{16,})",
    ),
    _rule(
        "password on a command line",
        "--pass --token curl sshpass login",
        r"((?:--pass(?:word|wd|phrase)?|--token|sshpass\s{1,4}-p)(?:\s{1,4}|=)[\\\"']{0,4}"
        r"|curl\s[^\n\\|;]{0,80}?(?:-u|--user)[\s=]{0,4}[\\\"']{0,4}[^\s:\"'\\]{1,64}:"
        r"|login(?:\s|\\+[nrt]){1,8}[^\s\\]{1,64}(?:\s|\\+[nrt]){1,8}password\s{1,4})((?![$<{\[\-])[^\s\"'\\]{4,})",
    ),
    # A password may be of any signs; one in quotes needs no digit.
    _rule(
        "password",
        "passw passphrase pwd pass=",
        rf"(?i)((?:passw(?:or)?d|passphrase|(?<![a-z])(?:pwd|pass(?==))){_IS})(?![$<{{\[/~.])"
        r"((?=[^\s\"'\\,;()]{0,80}\d)[^\s\"'\\,;()]{6,}|(?<=[\"'])[^\s\"'\\]{6,80}(?=\\{0,3}[\"']))",
    ),
    _rule(
        "value that is called like a secret",
        "secret credential authorization",
        rf"(?i)({_NAMED}(?:[_-]\w{{1,16}})?{_IS})((?=[^\s\"'\\()]{{0,80}}\d)[\w\-./+=~]{{8,}})",
        # Not "tokens", of which a page tells all the time.
        more=[
            *(f"{name}{sign}key" for name in _KEYS for sign in ("", "-", "_")),
            *(f"token{sign}" for sign in (*"=:_-%&\\\"'\n\x1b", " =", " :")),
        ],
    ),
)
_HINTS = Words({hint for rule in RULES for hint in rule.hints})
BEFORE, BEHIND = 32, 240
"""Characters around a hint that a rule reads at most, but for the secret itself, which no space or quote interrupts."""
_END = re.compile(r"[\s\"\\]")


@dataclass
class Masker:
    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        return self._by_rules(text, rules_for(text.encode("utf-8", "replace")))

    def json(self, text: bytes) -> bytes:
        """JSON as bytes, masked; most of it holds no hint, and is not decoded."""
        found = rules_for(text)
        return self._by_rules(text.decode(), found).encode() if found else text

    def _by_rules(self, text: str, found: dict[Rule, list[str]]) -> str:
        small = _in_small_letters(text) if found else ""
        for rule, hints in found.items():
            parts, done = [], 0
            for start, end in _surroundings(small, rule, hints):
                masked = rule.pattern.sub(functools.partial(self.mask, rule=rule), text[start:end])
                parts += [text[done:start], masked]
                done = end
            if parts and (changed := "".join([*parts, text[done:]])) != text:
                text, small = changed, _in_small_letters(changed)
        return text

    def mask(self, match: re.Match[str], rule: Rule) -> str:
        """What stands instead of a match of a rule's pattern."""
        if match.group(2) is None:
            return match.group(0)
        self.counts[rule.name] += 1
        secret = match.group(2)
        # What follows a backslash belongs to it: in JSON, the end of a line.
        escaped = match.string[: match.start(2)].endswith("\\") and (5 if secret[0] == "u" else 1)
        return match.group(1) + secret[: int(escaped)] + MASK


def hints_in(text: bytes) -> set[str]:
    return _HINTS.found_in(text.lower())


def rules_for(text: bytes) -> dict[Rule, list[str]]:
    """The rules that may find something in a text, in their order, with their hints that stand in it."""
    found = hints_in(text)
    return {rule: here for rule in RULES if (here := [hint for hint in rule.hints if hint in found])} if found else {}


def _in_small_letters(text: str) -> str:
    """The text in small letters, at the same places: of one letter they would be two."""
    return text.replace("\u0130", "I").lower()


def _surroundings(small: str, rule: Rule, hints: list[str]) -> list[tuple[int, int]]:
    """Where a rule may find something in a text, given in small letters, in order; none reaches into another."""
    if rule.whole:
        return [(0, len(small))]
    places: list[int] = []
    for hint in hints:
        place = small.find(hint)
        while place >= 0:
            places.append(place)
            place = small.find(hint, place + 1)
    found: list[tuple[int, int]] = []
    for place in sorted(places):
        start = max(0, place - BEFORE)
        if found and start <= found[-1][1] and place + BEHIND <= found[-1][1]:
            continue
        ends = _END.search(small, place + BEHIND)
        end = ends.start() if ends else len(small)
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found
