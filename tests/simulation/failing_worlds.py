"""Worlds that fail at each of their methods, in code of their own."""

from collections.abc import Mapping
from typing import Any

from opencode_simulation import EnvironmentWorld, Step, World, resource, tool


def of_the_world(how: str) -> None:
    """Where they fail."""
    if how == "silent":
        raise Mute
    if how == "exits":
        raise SystemExit(3)
    try:
        raise LookupError("no such shelf")
    except LookupError as error:
        raise RuntimeError(f"the shelf is gone: {how}") from error


class Mute(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Failing(World):
    """Fails in the method that its configuration names."""

    def __init__(self) -> None:
        self.at = ""

    def reset(self, seed: int | None, config: Mapping[str, Any]) -> str:
        self.at = str(config.get("at", ""))
        self.fail("reset")
        return "ready"

    def fail(self, place: str) -> None:
        if self.at == place:
            of_the_world(place)

    @tool
    def act(self, how: str = "well") -> Step:
        """Act."""
        self.fail("act")
        if how != "well":
            of_the_world(how)
        return Step("acted", 1.0)

    @tool
    async def act_slowly(self) -> Step:
        """Act."""
        self.fail("act_slowly")
        return Step("acted", 1.0)

    @resource("shelf://all")
    def shelf(self) -> str:
        """All that is on it."""
        of_the_world("shelf")
        return ""

    def finish(self) -> Step:
        self.fail("finish")
        return Step("", 0.5)

    def close(self) -> None:
        self.fail("close")


class Unmade(World):
    """Cannot be made."""

    def __init__(self) -> None:
        of_the_world("__init__")

    @tool
    def act(self) -> Step:
        """Act."""
        return Step("")


class Hooked(EnvironmentWorld):
    """Fails in a hook."""

    def create_environment(self, config: dict[str, Any]) -> Any:
        return self

    def reset_environment(self, environment: Any, seed: int | None = None) -> tuple[Any, Any]:
        return 0, {}

    def step_environment(self, environment: Any, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        of_the_world("step_environment")
        return 0, 0.0, False, False, {}

    def close_environment(self, environment: Any) -> None:
        """Nothing is to be closed."""

    @tool
    def act(self) -> str:
        """Act."""
        return "up"
