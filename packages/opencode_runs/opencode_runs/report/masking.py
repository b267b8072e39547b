"""What looks like a key is not shown: the rules by name, and how often each was used."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MASK = "[masked]"
SECRET_FIELD = re.compile(
    r"(?i)^(proxy-)?authorization$|^(x-)?api[-_]?key$|^(access|auth|refresh)[-_]?token$|^(client[-_]?)?secret$|^passw(or)?d$"
)


@dataclass(frozen=True)
class Rule:
    """A kind of secret: text that holds one of `hints` is searched for `pattern`, whose last group is masked."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _rule(name: str, hints: str, pattern: str) -> Rule:
    return Rule(name, tuple(hints.split()), re.compile(pattern))


RULES = (
    _rule("private key", "PRIVATE", r"-----BEGIN [A-Z ]*PRIVATE KEY-----()([\s\S]*?)(?=-----END|\Z)"),
    _rule("private key, cut off", "PRIVATE", r"\A()([A-Za-z0-9+/=\s\\n]{40,})(?=-----END [A-Z ]*PRIVATE KEY)"),
    _rule("bearer token", "earer EARER asic ASIC", r"(?i)(\b(?:bearer|basic)\s+)([A-Za-z0-9._~+/=-]{12,})"),
    _rule("sk- key", "sk-", r"(\bsk-)([A-Za-z0-9_-]{12,})"),
    _rule("GitHub token", "gh github_", r"(\b(?:gh[pousr]_|github_pat_))([A-Za-z0-9_]{16,})"),
    _rule("Hugging Face token", "hf_", r"(\bhf_)([A-Za-z0-9]{16,})"),
    _rule("Prime key", "pit_", r"(\bpit_)([A-Za-z0-9]{16,})"),
    _rule("Google key", "AIza", r"(\bAIza)([A-Za-z0-9_-]{20,})"),
    _rule("AWS key", "AKIA ASIA", r"(\b(?:AKIA|ASIA))([A-Z0-9]{16})\b"),
    _rule("Slack token", "xox", r"(\bxox[abeoprs]-)([A-Za-z0-9-]{10,})"),
    _rule("JSON web token", "eyJ", r"(\beyJ)([A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"),
    _rule("password in an address", "://", r"(://[^\s/:@\"'\\]{0,64}:)([^\s/@\"'\\]{1,256})(?=@)"),
    _rule(
        "assigned key",
        "ey EY oken OKEN ecret ECRET assw ASSW",
        r"(?i)((?:api[-_]?key|access[-_]?key|auth[-_]?token|access[-_]?token|secret(?:[-_]?key)?|passw(?:or)?d)"
        r"\w{0,16}[\\\"']{0,4}\s{0,4}[:=]\s{0,4}[\\\"']{0,4})((?=[^\s\"']{0,80}\d)[A-Za-z0-9_\-./+=~]{12,})",
    ),
)
FIELD_RULE = "field that is called like a secret"


@dataclass
class Masker:
    """Masks text, and counts."""

    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        """The text with everything masked that a rule finds."""
        for rule in RULES:
            if any(hint in text for hint in rule.hints):
                text, found = rule.pattern.subn(
                    lambda match: match.group(1) + MASK if match.group(2) != MASK else match.group(), text
                )
                if found:
                    self.counts[rule.name] += found
        return text

    def named(self, name: str, value: Any) -> Any:
        """A value of an object's field: masked if the field is called like a secret."""
        if isinstance(value, str) and value and SECRET_FIELD.match(name) and value != MASK:
            self.counts[FIELD_RULE] += 1
            return MASK
        return value
