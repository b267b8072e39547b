"""A simulation with the hooks of eval-protocol plays as a world."""

from typing import Any

import pytest
from opencode_env.simulation import EnvironmentWorld, tool
from opencode_env.simulation.alone import WorldAlone
from opencode_env.simulation.episode import EpisodeSpec, Refused
from opencode_env.simulation.errors import WorldError


class Dial:
    """An environment in the manner of Gymnasium."""

    def __init__(self, size: int) -> None:
        self.size, self.at, self.closed = size, 0, False

    def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        self.at = (seed or 0) % self.size
        return self.at, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.at = (self.at + action) % self.size
        return self.at, float(self.at == 0), self.at == 0, False, {"at": self.at}

    def close(self) -> None:
        self.closed = True


class DialWorld(EnvironmentWorld):
    """Only the hooks that differ."""

    DEFAULT_CONFIG = {"size": 5}

    def create_environment(self, config: dict[str, Any]) -> Dial:
        return Dial(config["size"])

    def parse_action(self, action: str) -> int:
        return {"left": -1, "right": 1}[action]

    def format_observation(self, observation: int) -> dict[str, int]:
        return {"position": observation}

    @tool
    def turn(self, direction: str) -> str:
        """Turn the dial."""
        return direction


async def test_the_hooks_play_an_episode() -> None:
    async with WorldAlone(DialWorld, EpisodeSpec(seed=8)) as world:
        assert world.first_observation == {"position": 3}
        assert await world.episode.call("turn", {"direction": "right"}) == '{"position": 4}'
        assert await world.episode.call("turn", {"direction": "right"}) == '{"position": 0}'
        environment = world.episode.world.environment  # type: ignore[attr-defined]
    assert environment.closed
    whole = world.ledger.summary
    assert (whole.total_reward, whole.terminated, whole.steps) == (1.0, True, 2)
    assert world.ledger.steps[-1].info == {"at": 0}


async def test_an_action_that_a_hook_cannot_parse_is_refused_and_changes_nothing() -> None:
    async with WorldAlone(DialWorld, EpisodeSpec(seed=1)) as world:
        with pytest.raises(Refused, match="'up' is no action here"):
            await world.episode.call("turn", {"direction": "up"})
        assert await world.episode.call("turn", {"direction": "right"}) == '{"position": 2}'
    assert world.ledger.summary.error is None
    assert (world.ledger.summary.steps, world.episode.refused) == (1, 1)


async def test_a_hook_that_is_missing_is_named() -> None:
    class Unmade(EnvironmentWorld):
        @tool
        def act(self) -> int:
            """Act."""
            return 1

    with pytest.raises(WorldError, match=r"Unmade has no create_environment\(config\)"):
        async with WorldAlone(Unmade, EpisodeSpec()):
            pass
