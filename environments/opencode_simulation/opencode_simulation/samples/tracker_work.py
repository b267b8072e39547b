"""The people, the issues and the pieces of work in the sample tracker, made from a seeded source.

Invariant: making the work may prepare issues for it, so that there is always something to do; each check says yes or no
to the issues as they stand at the end.
"""

import random
from collections.abc import Callable, Mapping
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
STALE_DAYS = 30


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
        return {name: getattr(self, name) for name in ("number", "title", "labels", "assignee", "idle_days")}

    def whole(self) -> dict[str, Any]:
        further = ("state", "reason", "duplicate_of", "body", "comments")
        return {**self.line(), **{name: getattr(self, name) for name in further}}


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
        made.append(Issue(number, f"{area} {fault} {thing}", body, [label, area], None, state, reason, None, idle))
    return made


Issues = dict[int, Issue]
Check = Callable[[Mapping[int, Issue]], bool]


@dataclass(frozen=True)
class Work:
    kind: str
    text: str
    checks: Mapping[str, Check]
    concerns: frozenset[int]
    """Issues that may be changed."""
    new_issues: int = 0
    """How many may be made."""


def make_work(source: random.Random, kind: str | None, issues: Issues, people: Mapping[str, str]) -> Work:
    """Work of one kind; None takes any.

    Raises:
        ValueError: there is no such kind.
    """
    makers = {"triage": _triage, "duplicates": _duplicates, "stale": _stale, "report": _report}
    chosen = source.choice(sorted(makers)) if kind is None else kind
    if chosen not in makers:
        raise ValueError(f"there is no work {chosen!r}: there are {', '.join(makers)}")
    return makers[chosen](source, issues, people)


def _triage(source: random.Random, issues: Issues, people: Mapping[str, str]) -> Work:
    """Every open bug to the person of its area."""
    bugs = [issue for issue in issues.values() if issue.state == "open" and "bug" in issue.labels]
    while len(bugs) < 2:
        issue = source.choice([issue for issue in issues.values() if issue not in bugs])
        issue.state, issue.reason, issue.labels = "open", None, ["bug", issue.labels[-1]]
        bugs.append(issue)
    owners = {bug.number: people[next(label for label in bug.labels if label in AREAS)] for bug in bugs}
    text = 'Assign every open issue with the label "bug" to the person who is responsible for its area.'
    checks: dict[str, Check] = {f"assigned {number}": _assigned(number, name) for number, name in owners.items()}
    return Work("triage", text, checks, frozenset(owners))


def _duplicates(source: random.Random, issues: Issues, people: Mapping[str, str]) -> Work:
    """Two reports of one thing: the later one goes."""
    first, second = sorted(source.sample(sorted(issues), 2))
    kept, copied = issues[first], issues[second]
    for issue in (kept, copied):
        issue.state, issue.reason = "open", None
    copied.title, copied.body, copied.labels = kept.title, kept.body, list(kept.labels)
    text = (
        "Two open issues have the same title. Close the one with the higher number as a duplicate of the other, and "
        'add the comment "see #N" to it, where N is the number of the issue that stays.'
    )
    checks: dict[str, Check] = {
        "closed as duplicate": lambda found: (
            (found[second].state, found[second].reason, found[second].duplicate_of) == ("closed", "duplicate", first)
        ),
        "commented": lambda found: f"see #{first}" in found[second].comments,
    }
    return Work("duplicates", text, checks, frozenset({second}))


def _stale(source: random.Random, issues: Issues, people: Mapping[str, str]) -> Work:
    """What nobody has answered for long."""
    asked = source.sample(sorted(issues), 3)
    for number, days in zip(asked, (61, 33, 9), strict=True):
        issue = issues[number]
        issue.state, issue.reason, issue.idle_days = "open", None, days
        issue.labels = ["needs-info", issue.labels[-1]]
    old = {
        issue.number
        for issue in issues.values()
        if issue.state == "open" and "needs-info" in issue.labels and issue.idle_days > STALE_DAYS
    }
    text = (
        f'Close every open issue with the label "needs-info" that has been idle for more than {STALE_DAYS} days, with '
        'the reason "stale".'
    )
    checks: dict[str, Check] = {f"closed {number}": _stale_closed(number) for number in sorted(old)}
    return Work("stale", text, checks, frozenset(old))


def _report(source: random.Random, issues: Issues, people: Mapping[str, str]) -> Work:
    """A new issue for the right person."""
    area, code = source.choice(AREAS), source.randint(100, 999)
    title = f"{area} fails with code {code}"
    text = (
        f'Open an issue titled "{title}" with the labels "bug" and "{area}", and assign it to the person who is '
        "responsible for that area."
    )

    def new(found: Mapping[int, Issue]) -> list[Issue]:
        return [issue for issue in found.values() if issue.title == title]

    checks: dict[str, Check] = {
        "opened": lambda found: len(new(found)) == 1,
        "labelled": lambda found: any(set(issue.labels) == {"bug", area} for issue in new(found)),
        "assigned": lambda found: any(issue.assignee == people[area] for issue in new(found)),
    }
    return Work("report", text, checks, frozenset(), new_issues=1)


def _assigned(number: int, name: str) -> Check:
    return lambda found: found[number].assignee == name


def _stale_closed(number: int) -> Check:
    return lambda found: (found[number].state, found[number].reason) == ("closed", "stale")
