"""The frozen lake: always the move that reaches G most likely, holes and slips considered."""

import re
from collections.abc import Sequence
from functools import lru_cache

from opencode_env.scripted_model.reply import Reply, ToolCall
from opencode_env.scripted_model.request import ChatRequest

_TOOL = "frozen_lake_move"
_MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
_NAMES = tuple(_MOVES)
_PLACE = re.compile(r"You are in row (\d+), column (\d+)")
_SWEEPS = 400
_IMPATIENCE = 0.999
"""What reaching G one move later is worth, so that no walk goes in circles."""

Place = tuple[int, int]


def play(request: ChatRequest) -> Reply:
    """The next move, or a last word when the walk is over."""
    seen = request.texts[-1]
    found = _PLACE.findall(seen)
    if not found or "You have" in seen:
        return Reply(text="The walk is over.")
    lake = tuple(line for line in request.prompt.splitlines() if line and set(line) <= set("SFHG"))
    row, column = found[-1]
    direction = plan(lake, "slippery" in request.prompt)[int(row), int(column)]
    return Reply(text=f"I go {direction}.", tool_calls=(ToolCall(name=_TOOL, arguments={"direction": direction}),))


@lru_cache(maxsize=256)
def plan(lake: Sequence[str], slippery: bool) -> dict[Place, str]:
    """The best direction by place: value iteration over the rules that the prompt tells."""
    places = [(row, column) for row, line in enumerate(lake) for column in range(len(line))]
    worth = {place: float(lake[place[0]][place[1]] == "G") for place in places}
    free = [(row, column) for row, column in places if lake[row][column] in "SF"]
    for _ in range(_SWEEPS):
        for place in free:
            worth[place] = _IMPATIENCE * max(_expected(lake, worth, place, turn, slippery) for turn in range(4))
    return {place: _NAMES[_best(lake, worth, place, slippery)] for place in free}


def _best(lake: Sequence[str], worth: dict[Place, float], place: Place, slippery: bool) -> int:
    return max(range(4), key=lambda turn: _expected(lake, worth, place, turn, slippery))


def _expected(lake: Sequence[str], worth: dict[Place, float], place: Place, turn: int, slippery: bool) -> float:
    turns = [(turn + side) % 4 for side in (-1, 0, 1)] if slippery else [turn]
    return sum(worth[_moved(lake, place, _NAMES[way])] for way in turns) / len(turns)


def _moved(lake: Sequence[str], place: Place, direction: str) -> Place:
    down, right = _MOVES[direction]
    last = len(lake) - 1
    return min(max(place[0] + down, 0), last), min(max(place[1] + right, 0), last)
