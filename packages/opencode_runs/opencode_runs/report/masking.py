"""What looks like a key is not shown: the rules by name, and how often each was used.

Rules read plain text and JSON alike: none of them reaches beyond the end of a string of JSON.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from opencode_runs.report.searching import Words

MASK = "[masked]"


@dataclass(frozen=True, eq=False)
class Rule:
    """A kind of secret: around each of `hints` in a text, `pattern` is searched, and its second group masked."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    whole: bool
    """Whether a secret may stand far from its hint, so that the whole text is searched."""


def _rule(name: str, hints: str, pattern: str, *, whole: bool = False) -> Rule:
    return Rule(name, tuple(hints.split()), re.compile(pattern), whole)


_PEM = r"(?:[A-Za-z0-9+/=\s:,]|\\+[nrt]|-(?!----))"
_LINES = r"(?:[A-Za-z0-9+/=]{16,}+(?:\s|\\+[nrt])*+)++"
_QUOTE = r"[\\\"']{0,4}"
_NAMED = (
    r"(?:api[-_]?key|access[-_]?key|(?:auth|access|refresh)[-_]?token|_token(?!s)|secret(?:[-_]?(?:access[-_]?)?key)?"
    r"|passw(?:or)?d|authorization)"
)
_NAMED_HINTS = (
    "api_key apikey api-key apiKey ApiKey API_KEY APIKEY API-KEY Api-Key access_key ACCESS_KEY accessKey _TOKEN "
    "auth_token access_token refresh_token authToken accessToken refreshToken secret SECRET Secret passw PASSW Passw "
    "uthorization UTHORIZATION"
)
RULES = (
    _rule("private key", "PRIVATE", rf"(-----BEGIN [A-Z ]{{0,40}}PRIVATE KEY-----)({_PEM}++)", whole=True),
    # Lines outside of a key are passed over by the second branch, so that each is read once.
    _rule(
        "end of a private key", "PRIVATE", rf"()(?:({_LINES})(?=-----END [A-Z ]{{0,40}}PRIVATE)|{_LINES})", whole=True
    ),
    _rule("bearer token", "earer EARER", r"(?i)(\bbearer\s+)((?=\S{0,200}\d|\S{24})[A-Za-z0-9._~+/=-]{12,})"),
    _rule(
        "basic authorization",
        "uthorization UTHORIZATION",
        rf"(?i)(authorization{_QUOTE}\s*[:=]\s*{_QUOTE}basic\s+)([A-Za-z0-9+/=]{{8,}})",
    ),
    _rule("sk- key", "sk-", r"(\bsk-)((?=[\w-]{0,200}\d)[A-Za-z0-9_-]{16,})"),
    _rule("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"(\b(?:gh[pousr]_|github_pat_))([A-Za-z0-9_]{16,})"),
    _rule("Hugging Face token", "hf_", r"(\bhf_)([A-Za-z0-9]{16,})"),
    _rule("Prime key", "pit_", r"(\bpit_)([A-Za-z0-9]{16,})"),
    _rule("Google key", "AIza", r"(\bAIza)([A-Za-z0-9_-]{20,})"),
    _rule("AWS key", "AKIA ASIA", r"(\b(?:AKIA|ASIA))([A-Z0-9]{16})\b"),
    _rule("Slack token", "xox", r"(\bxox[abeoprs]-)([A-Za-z0-9-]{10,})"),
    _rule("JSON web token", "eyJ", r"(\beyJ)([A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"),
    _rule("password in an address", "://", r"(://[^\s/:@\"'\\]{0,64}:)([^\s/@\"'\\\[]{1,256})(?=@)"),
    _rule(
        "value that is called like a secret",
        _NAMED_HINTS,
        rf"(?i)({_NAMED}(?:[_-]\w{{1,16}})?{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE})((?=[^\s\"'\\]{{0,80}}\d)[\w\-./+=~]{{8,}})",
    ),
)
hints_in = Words({hint for rule in RULES for hint in rule.hints}).found_in
"""The hints that stand in a text."""
BEFORE, BEHIND = 32, 160
"""Characters around a hint that a rule reads at most, but for the secret itself, which no space or quote interrupts."""
_END = re.compile(r"[\s\"\\]")


@dataclass
class Masker:
    """Masks text, and counts."""

    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        """The text with everything masked that a rule finds."""
        return self._by_rules(text, rules_for(text.encode("utf-8", "replace")))

    def json(self, text: bytes) -> bytes:
        """The same of JSON as bytes; most of it holds no hint, and is not decoded."""
        found = rules_for(text)
        return self._by_rules(text.decode(), found).encode() if found else text

    def _by_rules(self, text: str, found: dict[Rule, list[str]]) -> str:
        for rule, hints in found.items():
            text = self._masked(text, rule, hints)
        return text

    def _masked(self, text: str, rule: Rule, hints: list[str]) -> str:
        parts, done = [], 0
        for start, end in _surroundings(text, rule, hints):
            masked = rule.pattern.sub(lambda match: self._mask(match, rule), text[start:end])
            parts += [text[done:start], masked]
            done = end
        return "".join([*parts, text[done:]]) if parts else text

    def _mask(self, match: re.Match[str], rule: Rule) -> str:
        if match.group(2) is None:
            return match.group(0)
        self.counts[rule.name] += 1
        return match.group(1) + MASK


def rules_for(text: bytes) -> dict[Rule, list[str]]:
    """The rules that may find something in a text, in their order, with their hints that stand in it."""
    found = hints_in(text)
    return {rule: here for rule in RULES if (here := [hint for hint in rule.hints if hint in found])} if found else {}


def _surroundings(text: str, rule: Rule, hints: list[str]) -> list[tuple[int, int]]:
    """The parts of a text in which a rule may find something, in order; none reaches into another."""
    places: list[int] = []
    for hint in hints:
        place = text.find(hint)
        while place >= 0:
            if rule.whole:
                return [(0, len(text))]
            places.append(place)
            place = text.find(hint, place + 1)
    found: list[tuple[int, int]] = []
    for place in sorted(places):
        start = max(0, place - BEFORE)
        if found and start <= found[-1][1] and place + BEHIND <= found[-1][1]:
            continue
        ends = _END.search(text, place + BEHIND)
        end = ends.start() if ends else len(text)
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found
