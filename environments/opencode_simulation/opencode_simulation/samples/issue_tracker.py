"""An issue tracker of a small project, with a piece of work to be done in it.

The seed makes the people, the issues and the work. `finish` ends the episode; the reward is the share of the work's
checks that hold then, and 0 if any issue was changed that the work does not concern.
"""

import copy
import random
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue

from opencode_simulation.errors import InvalidAction
from opencode_simulation.samples.tracker_work import AREAS, LABELS, Issue, Work, make_issues, make_people, make_work
from opencode_simulation.world import Step, World, resource, tool

State = Literal["open", "closed"]
Reason = Literal["done", "duplicate", "stale", "wontfix"]


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
        self._people = make_people(source)
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
