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


@dataclass(frozen=True, eq=False)
class Rule:
    """A kind of secret: around each of `hints` (small letters) `pattern` is searched, and its second group masked."""

    name: str
    hints: tuple[bytes, ...]
    pattern: re.Pattern[str]
    whole: bool
    """Whether a secret may stand far from its hint, so that the whole text is searched; these rules come first."""


def _rule(name: str, hints: str, pattern: str, *, whole: bool = False, more: Sequence[str] = ()) -> Rule:
    return Rule(name, tuple(hint.encode() for hint in (*hints.split(), *more)), re.compile(pattern), whole)


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
    _rule(
        "cookie",
        "cookie",
        rf"(?i)(cookie{_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE})([\w.-]{{1,64}}=[^\"'\\\r\n]{{8,}})",
        whole=True,
    ),
    _rule("bearer token", "bearer", r"(?i)(bearer(?:\s|%20){1,4})((?=\S{0,200}\d|\S{24})[A-Za-z0-9._~+/=-]{12,})"),
    _rule(
        "authorization header",
        "authorization",
        rf"(?i)(authorization{_IS}(?:basic|bearer|token|apikey|negotiate)\s{{1,4}})(?!\[)([^\s\"'\\]{{8,}})",
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
BEFORE, BEHIND = 32, 240
"""Bytes around a hint that a rule reads at most, but for the secret itself, which no space or quote interrupts."""
_END = re.compile(rb"[\s\"\\]")


@dataclass
class Masker:
    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        return self.json(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def json(self, text: bytes) -> bytes:
        """JSON as bytes, masked; most of it stands near no hint, and is not decoded."""
        found = _hints_in(text)
        for rule in _rules_of(hint for _, hint in found):
            if rule.whole and (changed := self._masked(text, rule)) is not text:
                text, found = changed, _hints_in(changed)
        parts, done = [], 0
        for start, end, hints in _surroundings(text, found):
            part = text[start:end]
            for rule in _rules_of(hints):
                part = part if rule.whole else self._masked(part, rule)
            parts += [text[done:start], part]
            done = end
        return b"".join([*parts, text[done:]]) if parts else text

    def _masked(self, text: bytes, rule: Rule) -> bytes:
        # A part may begin or end within a character.
        decoded = text.decode("utf-8", "surrogateescape")
        masked = rule.pattern.sub(functools.partial(self.mask, rule=rule), decoded)
        return text if masked == decoded else masked.encode("utf-8", "surrogateescape")

    def mask(self, match: re.Match[str], rule: Rule) -> str:
        """Return what stands instead of a match of a rule's pattern."""
        if match.group(2) is None:
            return match.group(0)
        self.counts[rule.name] += 1
        secret = match.group(2)
        # What follows a backslash belongs to it: in JSON, the end of a line.
        escaped = match.string[: match.start(2)].endswith("\\") and (5 if secret[0] == "u" else 1)
        return match.group(1) + secret[: int(escaped)] + MASK


def holds_hint(text: bytes) -> bool:
    """Whether a secret may stand in a text."""
    return bool(_hints_in(text))


def _rules_of(hints: Iterable[bytes]) -> list[Rule]:
    found = {*hints}
    return [rule for rule in RULES if not found.isdisjoint(rule.hints)] if found else []


_FACTOR, _SHIFT, _THREE = np.uint32(2654435761), np.uint32(15), np.uint32(0xFFFFFF)


def _hashed(fours: np.ndarray) -> np.ndarray:
    return ((fours & _THREE) * _FACTOR) >> _SHIFT


_TABLE = np.zeros(1 << 17, dtype=bool)
"""Of any three bytes, whether they may be those of a hint that are hardly ever there by chance."""
_THREES: defaultdict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
"""The hints by these bytes, and where in the hint they are."""
for _hint in {hint for rule in RULES for hint in rule.hints}:
    _at = max(range(len(_hint) - 2), key=lambda at: sum(not chr(c).islower() for c in _hint[at : at + 3]))
    _THREES[_hint[_at : _at + 3]].append((_hint, _at))
    _TABLE[_hashed(np.frombuffer(_hint[_at : _at + 3] + b"\0", "<u4"))] = True


def _hints_in(text: bytes) -> list[tuple[int, bytes]]:
    """Return where hints stand in a text, in order: looking for each of a hundred by itself takes longer than all
    else."""
    small = text.lower() + b"\0\0\0\0"
    places: list[int] = []
    for shift in range(4):
        fours = np.frombuffer(small, "<u4", count=(len(small) - shift) // 4, offset=shift)
        places += (4 * np.flatnonzero(_TABLE[_hashed(fours)]) + shift).tolist()
    named = ((at - before, hint) for at in places for hint, before in _THREES.get(small[at : at + 3], ()))
    return sorted((place, hint) for place, hint in named if place >= 0 and small.startswith(hint, place))


def _surroundings(text: bytes, found: Iterable[tuple[int, bytes]]) -> list[tuple[int, int, set[bytes]]]:
    """Return where rules may find something, in order, and the hints that are there; none reaches into another."""
    parts: list[tuple[int, int, set[bytes]]] = []
    for place, hint in found:
        start, end, hints = max(0, place - BEFORE), place + BEHIND, {hint}
        if parts and start <= parts[-1][1]:
            start, reached, earlier = parts.pop()
            end, hints = max(end, reached), earlier | hints
        ends = _END.search(text, end)
        parts.append((start, ends.start() if ends else len(text), hints))
    return parts
