"""The people and issues of the sample tracker, made from a seeded source."""

import random
from dataclasses import dataclass, field
from typing import Any

AREAS = ("parser", "storage", "network", "editor")
LABELS = ("bug", "feature", "question", "needs-info")
_NAMES = ("ada", "bela", "chen", "dora", "emil", "farah", "goran", "hana")
_FAULTS = ("crashes on", "ignores", "is slow with", "loses", "shows twice", "cannot open")
_THINGS = (
    "empty files",
    "long lines",
    "accents",
    "a second window",
    "read-only folders",
    "large tables",
    "old projects",
)


@dataclass
class Issue:
    number: int
    title: str
    body: str
    labels: list[str] = field(default_factory=list)
    assignee: str | None = None
    state: str = "open"
    reason: str | None = None
    duplicate_of: int | None = None
    idle_days: int = 0
    comments: list[str] = field(default_factory=list)

    def line(self) -> dict[str, Any]:
        """What a list shows of it."""
        return {
            "number": self.number,
            "title": self.title,
            "labels": self.labels,
            "assignee": self.assignee,
            "idle_days": self.idle_days,
        }

    def whole(self) -> dict[str, Any]:
        rest = {"state": self.state, "reason": self.reason, "duplicate_of": self.duplicate_of}
        return {**self.line(), **rest, "body": self.body, "comments": self.comments}


def make_people(source: random.Random) -> dict[str, str]:
    """One person for each area."""
    return dict(zip(AREAS, source.sample(_NAMES, len(AREAS)), strict=True))


def make_issues(source: random.Random, count: int) -> list[Issue]:
    """Issues of different titles; their areas are among their labels."""
    kinds = [(area, fault, thing) for area in AREAS for fault in _FAULTS for thing in _THINGS]
    made = []
    for number, (area, fault, thing) in enumerate(source.sample(kinds, count), 1):
        label = source.choice(LABELS)
        body = f"The {area} {fault} {thing}. Seen in version {source.randint(1, 4)}.{source.randint(0, 9)}."
        idle = source.choice((2, 5, 9, 20, 33, 47, 61))
        state = source.choice(("open", "open", "open", "closed"))
        reason = "done" if state == "closed" else None
        issue = Issue(number, f"{area} {fault} {thing}", body, [label, area], None, state, reason, None, idle)
        made.append(issue)
    return made
