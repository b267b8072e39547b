"""A simulation with the hooks of eval-protocol plays as a world."""

import asyncio
import json
from typing import Any

import pytest
from opencode_simulation import EnvironmentWorld, tool
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import CallRefused, WorldError
from opencode_simulation.reference import problems_of


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
        with pytest.raises(CallRefused, match="'up' is not an action here"):
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


class Adapter:
    """The shape of eval-protocol's `EnvironmentAdapter`, whose every hook is a method of an instance."""

    def __init__(self, env_class: Any = None, default_config: dict[str, Any] | None = None) -> None:
        self.env_class = env_class
        self.default_config = default_config or {}

    def create_environment(self, config: dict[str, Any] | None = None) -> Any:
        return self.env_class({**self.get_default_config(), **(config or {})}["size"])

    def create_environment_with_seed(self, config: dict[str, Any] | None = None, seed: int | None = None) -> Any:
        made = self.create_environment(config)
        observation, info = made.reset(seed=seed)
        return made, observation, info

    def reset_environment(self, env: Any, seed: int | None = None) -> Any:
        return env.reset(seed=seed)

    def step_environment(self, env: Any, action: Any) -> Any:
        return env.step(action)

    def close_environment(self, env: Any) -> None:
        env.close()

    def parse_action(self, action_str: str) -> Any:
        return json.loads(action_str)

    def format_observation(self, observation: Any) -> Any:
        return {"at": observation}

    def get_default_config(self) -> dict[str, Any]:
        return self.default_config


class Dials:
    """What an author adds to an adapter."""

    def __init__(self) -> None:
        super().__init__(env_class=Dial, default_config={"size": 7})  # type: ignore[call-arg]

    @tool
    def turn(self, by: str) -> str:
        """Turn the dial by the number that a text holds."""
        return by

    @tool
    def turn_by(self, number: int) -> int:
        """Turn the dial."""
        return number


def of_bases(*bases: Any, **methods: Any) -> type[EnvironmentWorld]:
    """A class of these bases, whose hooks need not have one signature."""
    made: type[EnvironmentWorld] = type("DialAdapterWorld", bases, methods)
    return made


def sized(self: Any, obs: Any, env: Any) -> Any:
    """An author's own hook, which takes the environment."""
    return {"at": obs, "of": env.size}


class AdapterWithEnvironment(Adapter):
    """Its `format_observation` takes the environment, as that of `McpGym` does, and waits."""

    async def format_observation(self, obs: Any, env: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return {"at": obs, "of": env.size}


ADAPTED = {
    "world first": (of_bases(Dials, EnvironmentWorld, Adapter), {}),
    "adapter first": (of_bases(Dials, Adapter, EnvironmentWorld), {}),
    "its own hook": (of_bases(Dials, EnvironmentWorld, Adapter, format_observation=sized), {"of": 7}),
    "its own hook on top": (of_bases(of_bases(Dials, Adapter, EnvironmentWorld), format_observation=sized), {"of": 7}),
    "with the environment": (of_bases(Dials, EnvironmentWorld, AdapterWithEnvironment), {"of": 7}),
}


@pytest.mark.parametrize(("world", "more"), ADAPTED.values(), ids=ADAPTED)
async def test_an_adapter_runs_unchanged_whatever_the_order_of_the_bases(
    world: type[EnvironmentWorld], more: dict[str, int]
) -> None:
    assert problems_of(world, "dials") == []
    assert world.default_config() == {"size": 7}
    async with WorldAlone(world, EpisodeSpec(seed=10)) as alone:
        assert alone.first_observation == {"at": 3, **more}
        assert json.loads(await alone.episode.call("turn", {"by": "2"})) == {"at": 5, **more}
        with pytest.raises(CallRefused, match="is not an action here"):
            await alone.episode.call("turn", {"by": "two"})
        assert json.loads(await alone.episode.call("turn_by", {"number": 2})) == {"at": 0, **more}
        environment = alone.episode.world.environment  # type: ignore[attr-defined]
    assert environment.closed
    assert (alone.ledger.summary.error, alone.ledger.summary.total_reward) == (None, 1.0)


async def test_a_row_of_an_adapter_is_laid_on_what_its_instance_gives() -> None:
    async with WorldAlone(ADAPTED["world first"][0], EpisodeSpec(seed=10, config={"size": 4})) as alone:
        assert alone.first_observation == {"at": 2}


async def test_a_second_parameter_that_is_no_environment_keeps_its_default() -> None:
    class Rounded(DialWorld):
        def format_observation(self, observation: float, digits: int = 2) -> Any:
            return round(observation / 3, digits)

    async with WorldAlone(Rounded, EpisodeSpec(seed=1)) as alone:
        assert alone.first_observation == 0.33
