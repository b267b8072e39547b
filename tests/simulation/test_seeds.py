"""The same seed and actions give the same episode, in this process and in another."""

import asyncio
import json
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.ledger import Ledger
from opencode_simulation.reference import SAMPLES

from tests.simulation.wandering import Call, played_alone, random_call

ELSEWHERE = """
import asyncio, json, sys
from tests.simulation.wandering import EpisodeSpec, played_alone
for world, seed, calls in json.loads(sys.argv[1]):
    print(asyncio.run(played_alone(world, EpisodeSpec(seed=seed), calls)).model_dump_json())
"""
"""Executed and not forked: the hashes of texts are others in it."""

SEEDS = st.integers(-(2**63), 2**63 - 1)


def played(world: str, seed: int, calls: list[Call]) -> Ledger:
    """The ledger of an episode with these calls, as far as it goes."""
    return asyncio.run(played_alone(world, EpisodeSpec(seed=seed), calls))


def random_calls(world: str, seed: int) -> list[Call]:
    """What a player of this seed does."""
    source = random.Random(seed)
    return [random_call(world, source) for _ in range(40)]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), SEEDS, st.integers(0, 2**32))
def test_the_same_seed_and_calls_give_the_same_episode(world: str, seed: int, player: int) -> None:
    calls = random_calls(world, player)
    first = played(world, seed, calls)
    assert first == played(world, seed, calls)
    assert first.steps
    assert first.summary.error is None


@pytest.mark.usefixtures("programs")
def test_another_process_gives_the_same_episodes() -> None:
    asked = [(world, seed, random_calls(world, seed)) for world in sorted(SAMPLES) for seed in (11, -3, 2**62)]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps(asked)], capture_output=True, text=True, check=True
    )
    found = [Ledger.model_validate_json(line) for line in done.stdout.splitlines()]
    assert found == [played(*episode) for episode in asked]
