"""The same seed and actions give the same episode, in this process and in another."""

import asyncio
import json
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from opencode_env.simulation.alone import WorldAlone
from opencode_env.simulation.episode import EpisodeSpec
from opencode_env.simulation.ledger import Ledger
from opencode_env.simulation.reference import find_world

DIRECTIONS = ("left", "down", "right", "up")

ELSEWHERE = """
import asyncio, json, sys
from tests.simulation.test_seeds import played
world, seed, calls = json.loads(sys.argv[1])
print(played(world, seed, {}, calls).model_dump_json())
"""


def played(world: str, seed: int, config: dict[str, object], calls: list[tuple[str, dict[str, object]]]) -> Ledger:
    """The ledger of an episode with these calls, as far as it goes."""

    async def play() -> Ledger:
        async with WorldAlone(find_world(world), EpisodeSpec(seed=seed, config=config)) as alone:
            for tool, arguments in calls:
                if alone.ledger.summary.terminated:
                    break
                await alone.episode.call(tool, arguments)
            return alone.ledger

    return asyncio.run(play())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(DIRECTIONS), max_size=30), st.booleans())
def test_the_same_seed_and_moves_give_the_same_walk(seed: int, moves: list[str], slippery: bool) -> None:
    calls: list[tuple[str, dict[str, object]]] = [("move", {"direction": direction}) for direction in moves]
    config: dict[str, object] = {"slippery": slippery}
    assert played("frozen-lake", seed, config, calls) == played("frozen-lake", seed, config, calls)


def test_another_process_gives_the_same_episode() -> None:
    calls: list[tuple[str, dict[str, object]]] = [
        ("list_people", {}),
        ("list_issues", {}),
        ("label_issue", {"number": 2, "add": ["bug"]}),
        ("finish", {}),
    ]
    given_here = played("issue-tracker", 11, {}, calls)
    asked = json.dumps(["issue-tracker", 11, calls])
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, asked], capture_output=True, text=True, check=True)
    assert Ledger.model_validate_json(done.stdout) == given_here
