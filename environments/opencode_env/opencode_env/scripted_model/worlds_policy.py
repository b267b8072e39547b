"""Plays the shipped worlds through their tools: it knows what a player is told, and nothing of the worlds' code."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opencode_env.scripted_model.policy import LABEL, ChatRequest, Reply, ToolCall


def _call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=tool, arguments=arguments)


# The frozen lake: always the move that reaches G most likely, holes and slips considered.
_MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
_NAMES = tuple(_MOVES)
_PLACE = re.compile(r"You are in row (\d+), column (\d+)")
_SWEEPS = 400
_IMPATIENCE = 0.999
"""What reaching G one move later is worth, so that no walk goes in circles."""

_Cell = tuple[int, int]


def _play_lake(request: ChatRequest) -> Reply:
    """The next move, or a last word when the walk is over."""
    seen = request.texts[-1]
    found = _PLACE.findall(seen)
    if not found or "You have" in seen:
        return Reply(text="The walk is over.")
    lake = tuple(line for line in request.prompt.splitlines() if line and set(line) <= set("SFHG"))
    row, column = found[-1]
    direction = _plan(lake, "slippery" in request.prompt)[int(row), int(column)]
    return Reply(text=f"I go {direction}.", tool_calls=(_call("frozen_lake_move", direction=direction),))


@lru_cache(maxsize=256)
def _plan(lake: Sequence[str], slippery: bool) -> dict[_Cell, str]:
    """The best direction by place: value iteration over the rules that the prompt tells."""
    places = [(row, column) for row, line in enumerate(lake) for column in range(len(line))]
    worth = {place: float(lake[place[0]][place[1]] == "G") for place in places}
    free = [(row, column) for row, column in places if lake[row][column] in "SF"]
    for _ in range(_SWEEPS):
        for place in free:
            worth[place] = _IMPATIENCE * max(_expected(lake, worth, place, aim, slippery) for aim in range(4))
    # The first of several that are equally good.
    expected = {place: [_expected(lake, worth, place, aim, slippery) for aim in range(4)] for place in free}
    return {place: _NAMES[values.index(max(values))] for place, values in expected.items()}


def _expected(lake: Sequence[str], worth: dict[_Cell, float], place: _Cell, aim: int, slippery: bool) -> float:
    aims = [(aim + side) % 4 for side in (-1, 0, 1)] if slippery else [aim]
    return sum(worth[_moved(lake, place, _NAMES[one])] for one in aims) / len(aims)


def _moved(lake: Sequence[str], place: _Cell, direction: str) -> _Cell:
    down, right = _MOVES[direction]
    last = len(lake) - 1
    return min(max(place[0] + down, 0), last), min(max(place[1] + right, 0), last)


# The issue tracker: looks at the people and the issues, does what the prompt asks, and hands the work in.
_Issue = dict[str, Any]

_FINISH = Reply(text="I hand the work in.", tool_calls=(_call("tracker_finish", summary="done"),))


def _play_tracker(request: ChatRequest) -> Reply:
    """Look, do, and finish, one turn for each; a turn more where the number of a new issue must be known."""
    seen = [message.text for message in request.body.messages if message.role == "tool"]
    if any("handed in" in text for text in seen):
        return Reply(text="Done.")
    if not seen:
        calls = [_call("tracker_list_people"), _call("tracker_list_issues", state="open")]
        return Reply(text="I look around.", tool_calls=tuple(calls))
    people = {person["area"]: person["name"] for person in json.loads(seen[0])["people"]}
    issues = json.loads(seen[1])["issues"]
    calls = next((work(request.prompt, people, issues) for words, work in _WORK.items() if words in request.prompt), [])
    done = len(seen) - 2
    if not done:
        return Reply(text="I do it.", tool_calls=tuple(calls)) if calls else _FINISH
    if "Open an issue" in request.prompt and done == 1:
        area = re.findall(r'"(\w+)", and assign', request.prompt)[0]
        call = _call("tracker_assign_issue", number=json.loads(seen[2])["number"], assignee=people[area])
        return Reply(text="I assign it.", tool_calls=(call,))
    return _FINISH


def _triage(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    calls = []
    for bug in (issue for issue in issues if "bug" in issue["labels"]):
        area = next(area for area in bug["labels"] if area in people)
        calls.append(_call("tracker_assign_issue", number=bug["number"], assignee=people[area]))
    return calls


def _duplicates(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    first: dict[str, int] = {}
    for issue in issues:
        number = issue["number"]
        if (kept := first.setdefault(issue["title"], number)) != number:
            comment = _call("tracker_comment_issue", number=number, text=f"see #{kept}")
            return [comment, _call("tracker_close_issue", number=number, reason="duplicate", duplicate_of=kept)]
    return []


def _stale(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    days = int(re.findall(r"more than (\d+) days", prompt)[0])
    old = [issue for issue in issues if "needs-info" in issue["labels"] and issue["idle_days"] > days]
    return [_call("tracker_close_issue", number=issue["number"], reason="stale") for issue in old]


def _report(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    title, area = re.findall(r'titled "(.+?)".*? and "(\w+)"', prompt)[0]
    return [_call("tracker_create_issue", title=title, body="Seen today.", labels=["bug", area])]


_WORK = {"Assign every": _triage, "same title": _duplicates, "Close every": _stale, "Open an issue": _report}
"""What there is to do, by words of the prompt."""


# The order desk: finds the customer's order, does what the rules allow, and tells the customer.
_CUSTOMER = re.compile(r"^(\w+) writes: ", re.MULTILINE)
_WISHES = (
    (re.compile(r"I ordered a (\w+), and would like it in (\w+) instead"), "change_colour", "open"),
    (re.compile(r"I ordered a (\w+) and do not want it any more"), "cancel_order", "open"),
    (re.compile(r"send back the (\w+)"), "accept_return", "delivered"),
)


def _play_desk(request: ChatRequest) -> Reply:
    """Look, do, tell: one turn for each; what the customer says then changes nothing."""
    seen = [message.text for message in request.body.messages if message.role == "tool"]
    if not seen:
        (customer,) = _CUSTOMER.findall(request.prompt)[:1]
        return Reply(text="I look for the order.", tool_calls=(_call("order_desk_find_orders", customer=customer),))
    if len(seen) > 1:
        return Reply(text="It is done.")
    for wish, name, state in _WISHES:
        if (found := wish.search(request.prompt)) is None:
            continue
        order = next(one for one in json.loads(seen[0])["orders"] if one["thing"] == found[1])
        if order["state"] == state:
            more = {"colour": found[2]} if name == "change_colour" else {}
            return Reply(text="I do it.", tool_calls=(_call(f"order_desk_{name}", number=order["number"], **more),))
    return Reply(text="I am sorry, that cannot be done any more.")


_PLAYERS = {"frozen_lake_move": _play_lake, "tracker_finish": _play_tracker, "order_desk_find_orders": _play_desk}
"""By a tool that only the player's world has."""


class WorldsPolicy:
    """Plays whichever shipped world a request offers the tools of, and for any other says what it is."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        for tool, play in _PLAYERS.items():
            if tool in request.tools:
                return play(request)
        return Reply(text=f"This is a {LABEL}; it plays the shipped worlds and was offered the tools of none.")
