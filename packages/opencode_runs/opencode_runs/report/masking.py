"""What looks like a key is not shown: the rules by name, and how often each was used.

Rules read plain text and JSON alike: none of them reaches beyond the end of a string of JSON.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

MASK = "[masked]"


@dataclass(frozen=True)
class Rule:
    """A kind of secret: text that holds one of `hints` is searched for `pattern`, whose second group is masked."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _rule(name: str, hints: str, pattern: str) -> Rule:
    return Rule(name, tuple(hints.split()), re.compile(pattern))


_PEM = r"(?:[A-Za-z0-9+/=\s:,]|\\+[nrt]|-(?!----))"
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
    _rule("private key", "PRIVATE", rf"(-----BEGIN [A-Z ]*PRIVATE KEY-----)({_PEM}+)"),
    _rule(
        "end of a private key", "PRIVATE", r"()((?:[A-Za-z0-9+/=]{16,}(?:\s|\\+[nrt])*)+)(?=-----END [A-Z ]*PRIVATE)"
    ),
    _rule("bearer token", "earer EARER", r"(?i)(\bbearer\s+)((?=\S{0,200}\d|\S{24})[A-Za-z0-9._~+/=-]{12,})"),
    _rule(
        "basic authorization", "asic", rf"(?i)(authorization{_QUOTE}\s*[:=]\s*{_QUOTE}basic\s+)([A-Za-z0-9+/=]{{8,}})"
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
_STEMS = (
    *("key", "token", "secret", "passw", "uthorization", "private", "earer", "asic", "sk-", "github_pat_", "hf_"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *("pit_", "aiza", "akia", "asia", "xox", "eyj", "://"),
)
"""Each hint holds one of them, written small."""


@dataclass
class Masker:
    """Masks text, and counts."""

    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        """The text with everything masked that a rule finds."""
        small = text.lower()
        for stem in _STEMS:
            if stem in small:
                return self._masked(text)
        return text

    def _masked(self, text: str) -> str:
        for rule in RULES:
            for hint in rule.hints:
                if hint in text:
                    text, found = rule.pattern.subn(lambda match: match.group(1) + MASK, text)
                    if found:
                        self.counts[rule.name] += found
                    break
        return text
