"""The issue tracker: looks at the people and the issues, does what the prompt asks, and hands the work in."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from opencode_env.scripted_model.reply import Reply, ToolCall
from opencode_env.scripted_model.request import ChatRequest

Issue = dict[str, Any]


def _call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=f"tracker_{tool}", arguments=arguments)


_LOOK = Reply(text="I look around.", tool_calls=(_call("list_people"), _call("list_issues", state="open")))
_FINISH = Reply(text="I hand the work in.", tool_calls=(_call("finish", summary="done"),))
_END = Reply(text="Done.")


def play(request: ChatRequest) -> Reply:
    """Look, do, and finish, one turn for each; a turn more where the number of a new issue must be known."""
    seen = [message.text for message in request.body.messages if message.role == "tool"]
    if any("handed in" in text for text in seen):
        return _END
    if not seen:
        return _LOOK
    people = {person["area"]: person["name"] for person in json.loads(seen[0])["people"]}
    calls = _work(request.prompt)(request.prompt, people, json.loads(seen[1])["issues"])
    done = len(seen) - 2
    if not done:
        return Reply(text="I do it.", tool_calls=tuple(calls)) if calls else _FINISH
    if "Open an issue" in request.prompt and done == 1:
        number = json.loads(seen[2])["number"]
        area = re.findall(r'"(\w+)", and assign', request.prompt)[0]
        return Reply(text="I assign it.", tool_calls=(_call("assign_issue", number=number, assignee=people[area]),))
    return _FINISH


def _work(prompt: str) -> Callable[[str, dict[str, str], Sequence[Issue]], list[ToolCall]]:
    for words, work in (
        ("Assign every", _triage),
        ("same title", _duplicates),
        ("Close every", _stale),
        ("Open an issue", _report),
    ):
        if words in prompt:
            return work
    return lambda *_: []


def _triage(prompt: str, people: dict[str, str], issues: Sequence[Issue]) -> list[ToolCall]:
    bugs = [issue for issue in issues if "bug" in issue["labels"]]
    return [
        _call(
            "assign_issue",
            number=bug["number"],
            assignee=people[next(area for area in bug["labels"] if area in people)],
        )
        for bug in bugs
    ]


def _duplicates(prompt: str, people: dict[str, str], issues: Sequence[Issue]) -> list[ToolCall]:
    first: dict[str, int] = {}
    for issue in issues:
        kept = first.setdefault(issue["title"], issue["number"])
        if kept != issue["number"]:
            number = issue["number"]
            comment = _call("comment_issue", number=number, text=f"see #{kept}")
            return [comment, _call("close_issue", number=number, reason="duplicate", duplicate_of=kept)]
    return []


def _stale(prompt: str, people: dict[str, str], issues: Sequence[Issue]) -> list[ToolCall]:
    days = int(re.findall(r"more than (\d+) days", prompt)[0])
    old = [issue for issue in issues if "needs-info" in issue["labels"] and issue["idle_days"] > days]
    return [_call("close_issue", number=issue["number"], reason="stale") for issue in old]


def _report(prompt: str, people: dict[str, str], issues: Sequence[Issue]) -> list[ToolCall]:
    title, area = re.findall(r'titled "(.+?)".*? and "(\w+)"', prompt)[0]
    return [_call("create_issue", title=title, body="Seen today.", labels=["bug", area])]
