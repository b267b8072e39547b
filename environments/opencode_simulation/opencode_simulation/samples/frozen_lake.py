"""A walk over a frozen lake: from S to G over ice (F), past the holes (H); on slippery ice not always as meant.

The rules: the reward is 1 for reaching G and 0 for everything else; a hole or G ends the episode; on slippery ice a
move goes where it was meant to with probability 1/3, and with 1/3 each to either side of that; a move off the lake goes
nowhere; after `max_moves` moves the episode is cut off.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import JsonValue

from opencode_simulation.world import Step, World, tool

Direction = Literal["left", "down", "right", "up"]
_DIRECTIONS: Sequence[Direction] = ("left", "down", "right", "up")
"""In this order each has its two sides before and after it."""
_MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
Place = tuple[int, int]


class FrozenLake(World):
    """A lake of `size` by `size` fields, made from the seed unless `map` gives its rows."""

    PROMPT = (
        "You stand on a frozen lake at S and want to reach G. F is ice, H a hole: falling in ends the walk. Move with "
        "the tool `move`, one field a call, until the walk is over.\n\n{observation}"
    )

    @classmethod
    def default_config(cls) -> Mapping[str, JsonValue]:
        """A lake of 4 by 4 fields, a fifth of them holes, slippery, with 100 moves."""
        return {"size": 4, "hole_share": 0.2, "slippery": True, "max_moves": 100, "map": None}

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> str:
        """Make the lake and stand at S."""
        self._random = random.Random(seed)
        self._slippery = bool(config["slippery"])
        self._max_moves = int(config["max_moves"])  # type: ignore[arg-type]
        given: Any = config["map"]
        self._lake = [str(row) for row in given] if given else self._made(int(config["size"]), config["hole_share"])  # type: ignore[arg-type]
        self._place: Place = next((row, line.index("S")) for row, line in enumerate(self._lake) if "S" in line)
        self._moves = 0
        ice = "slippery: a move may go to the side" if self._slippery else "rough: every move goes where you mean to"
        return f"The ice is {ice}.\n{self._seen()}"

    @tool
    def move(self, direction: Direction) -> Direction:
        """Move one field.

        Off the lake one stays where one is.
        """
        return direction

    def step(self, action: Direction) -> Step:
        """Move, or slip."""
        turn = self._random.choice((-1, 0, 1)) if self._slippery else 0
        went = _DIRECTIONS[(_DIRECTIONS.index(action) + turn) % len(_DIRECTIONS)]
        down, right = _MOVES[went]
        row, column, last = self._place[0] + down, self._place[1] + right, len(self._lake) - 1
        self._place = (min(max(row, 0), last), min(max(column, 0), last))
        self._moves += 1
        field = self._lake[self._place[0]][self._place[1]]
        ended = field in "GH"
        endings = {"G": "\nYou have reached G.", "H": "\nYou have fallen into a hole."}
        return Step(
            observation=self._seen() + endings.get(field, ""),
            reward=float(field == "G"),
            terminated=ended,
            truncated=not ended and self._moves >= self._max_moves,
            info={"meant": action, "went": went},
        )

    def _seen(self) -> str:
        row, column = self._place
        return "\n".join([*self._lake, f"You are in row {row}, column {column}, on {self._lake[row][column]}."])

    def _made(self, size: int, hole_share: float) -> list[str]:
        """A random lake on which G can be reached."""
        while True:
            fields = [["H" if self._random.random() < hole_share else "F" for _ in range(size)] for _ in range(size)]
            fields[0][0], fields[-1][-1] = "S", "G"
            lake = ["".join(row) for row in fields]
            if _connected(lake):
                return lake


def _connected(lake: Sequence[str]) -> bool:
    """Whether there is a way over ice from the first field to the last."""
    last = len(lake) - 1
    reached: set[Place] = set()
    waiting: list[Place] = [(0, 0)]
    while waiting:
        place = waiting.pop()
        if place in reached or lake[place[0]][place[1]] == "H":
            continue
        reached.add(place)
        around = [(place[0] + down, place[1] + right) for down, right in _MOVES.values()]
        waiting += [(row, column) for row, column in around if 0 <= row <= last and 0 <= column <= last]
    return (last, last) in reached
