"""An issue tracker of a small project, with a piece of work to be done in it.

The seed makes the people, the issues and the work; making the work may prepare issues for it, so that there is always
something to do. `finish` ends the episode; the reward is the share of the work's checks that hold then, and 0 if any
issue was changed that the work does not concern.
"""

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import JsonValue

from opencode_simulation.errors import InvalidAction
from opencode_simulation.world import Step, World, resource, tool

State = Literal["open", "closed"]
Reason = Literal["done", "duplicate", "stale", "wontfix"]
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
        return {name: getattr(self, name) for name in ("number", "title", "labels", "assignee", "idle_days")}

    def whole(self) -> dict[str, Any]:
        further = ("state", "reason", "duplicate_of", "body", "comments")
        return {**self.line(), **{name: getattr(self, name) for name in further}}


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
    """Work of one kind; None takes any."""
    makers = {"triage": _triage, "duplicates": _duplicates, "stale": _stale, "report": _report}
    chosen = source.choice(sorted(makers)) if kind is None else kind
    if chosen not in makers:
        raise ValueError(f"there is no work {chosen!r}: there are {', '.join(makers)}")
    return makers[chosen](source, issues, people)


def _triage(source: random.Random, issues: Issues, people: Mapping[str, str]) -> Work:
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


class IssueTracker(World):
    """Ten tools over seeded issues."""

    NAME = "tracker"
    PROMPT = (
        "You work in the issue tracker of a small project, with its tools only. When the work is done, call `finish`.\n"
        "\n{observation}"
    )

    @classmethod
    def default_config(cls) -> Mapping[str, JsonValue]:
        """16 issues, and any kind of work: `triage`, `duplicates`, `stale` or `report`."""
        return {"issues": 16, "work": None}

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> str:
        """Make people, issues and work; the first observation is what is to be done."""
        source = random.Random(seed)
        self._people = dict(zip(AREAS, source.sample(_NAMES, len(AREAS)), strict=True))  # one for each area
        self._issues = {issue.number: issue for issue in make_issues(source, int(config["issues"]))}  # type: ignore[arg-type]
        kind: Any = config["work"]
        self._work: Work = make_work(source, kind, self._issues, self._people)
        self._before = copy.deepcopy(self._issues)
        return self._work.text

    @tool
    def list_issues(self, state: State = "open", label: str | None = None, assignee: str | None = None) -> Step:
        """List issues by number, those only that have the label and the assignee if these are given."""
        found = [
            issue.line()
            for issue in self._issues.values()
            if issue.state == state and label in (None, *issue.labels) and assignee in (None, issue.assignee)
        ]
        return Step({"issues": found})

    @tool
    def get_issue(self, number: int) -> Step:
        """Show one issue with its text and comments."""
        return Step(self._issue(number).whole())

    @tool
    def search_issues(self, text: str) -> Step:
        """List the issues, open or closed, whose title or body holds the text, in any case."""
        wanted = text.lower()
        found = [issue.line() for issue in self._issues.values() if wanted in f"{issue.title}\n{issue.body}".lower()]
        return Step({"issues": found})

    @tool
    def list_people(self) -> Step:
        """List the people of the project and the area that each is responsible for."""
        return Step({"people": [{"name": name, "area": area} for area, name in self._people.items()]})

    @tool
    def create_issue(self, title: str, body: str, labels: list[str] | None = None) -> Step:
        """Open a new issue; returns its number."""
        number = max(self._issues, default=0) + 1
        kept = [self._label(label) for label in labels or []]
        self._issues[number] = Issue(number=number, title=title, body=body, labels=kept)
        return Step({"number": number})

    @tool
    def comment_issue(self, number: int, text: str) -> Step:
        """Add a comment to an issue."""
        self._issue(number).comments.append(text)
        return Step({"number": number, "comments": len(self._issue(number).comments)})

    @tool
    def label_issue(self, number: int, add: list[str] | None = None, remove: list[str] | None = None) -> Step:
        """Add labels to an issue and take labels off it."""
        issue = self._issue(number)
        added = [self._label(label) for label in add or []]
        issue.labels = [label for label in dict.fromkeys([*issue.labels, *added]) if label not in (remove or [])]
        return Step({"number": number, "labels": issue.labels})

    @tool
    def assign_issue(self, number: int, assignee: str | None) -> Step:
        """Make someone responsible for an issue, or nobody with null."""
        issue = self._issue(number)
        if assignee is not None and assignee not in self._people.values():
            raise InvalidAction(f"there is nobody called {assignee!r}: see list_people")
        issue.assignee = assignee
        return Step({"number": number, "assignee": assignee})

    @tool
    def close_issue(self, number: int, reason: Reason, duplicate_of: int | None = None) -> Step:
        """Close an issue. With the reason "duplicate", `duplicate_of` is the number of the issue that stays."""
        issue = self._issue(number)
        if issue.state == "closed":
            raise InvalidAction(f"issue {number} is closed already")
        if (reason == "duplicate") != (duplicate_of is not None):
            raise InvalidAction('duplicate_of goes with the reason "duplicate" and with no other')
        if duplicate_of is not None:
            self._issue(duplicate_of)
        issue.state, issue.reason, issue.duplicate_of = "closed", reason, duplicate_of
        return Step({"number": number, "state": "closed"})

    @tool
    def finish(self, summary: str = "") -> Step:
        """Say that the work is done. Nothing can be changed afterwards."""
        checks = {name: check(self._issues) for name, check in self._work.checks.items()}
        strayed = [
            number
            for number, issue in self._issues.items()
            if number not in self._work.concerns and issue != self._before.get(number) and number in self._before
        ]
        new = self._issues.keys() - self._before.keys()
        spoiled = bool(strayed) or len(new) > self._work.new_issues
        reward = 0.0 if spoiled else sum(checks.values()) / len(checks)
        info = {"work": self._work.kind, "checks": checks, "strayed": strayed, "summary": summary}
        return Step("Your work was handed in.", reward, terminated=True, info=info)

    @resource("tracker://labels")
    def labels(self) -> str:
        """The labels that issues can have."""
        return "\n".join([*LABELS, *AREAS])

    @resource("tracker://issues/{number}")
    def issue_text(self, number: int) -> dict[str, Any]:
        """One issue with its text and comments."""
        return self._issue(number).whole()

    def _issue(self, number: int) -> Issue:
        if number not in self._issues:
            raise InvalidAction(f"there is no issue {number}")
        return self._issues[number]

    def _label(self, label: str) -> str:
        if label not in (*LABELS, *AREAS):
            raise InvalidAction(f"there is no label {label!r}: there are {', '.join((*LABELS, *AREAS))}")
        return label
