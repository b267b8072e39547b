"""Worlds of the tests: one that counts, and some that fail. Server processes import it by its name."""

import os
import time
from collections.abc import Mapping
from typing import Any, Literal

from opencode_simulation import InvalidAction, Step, World, resource, tool
from pydantic import JsonValue


class Counter(World):
    """Adds numbers up, and ends at `goal`; the reward of a step is what it added."""

    NAME = "counter"
    PROMPT = "Count. {observation}"

    @classmethod
    def default_config(cls) -> Mapping[str, JsonValue]:
        return {"goal": 1000}

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> dict[str, Any]:
        self.total = seed or 0
        self.goal = int(str(config["goal"]))
        return {"total": self.total}

    @tool
    def add(self, number: int) -> int:
        """Add a number."""
        if number < 0:
            raise InvalidAction("only up")
        return number

    @tool(name="add_later")
    async def wait_and_add(self, number: int = 1) -> Step:
        """Add a number, without a thread."""
        return self.step(number)

    def step(self, action: int) -> Step:
        self.total += action
        secret = {"secret": f"seed {self.total}"}
        return Step({"total": self.total}, float(action), self.total >= self.goal, info=secret)

    @resource("counter://total")
    def read_total(self) -> str:
        """The total."""
        return str(self.total)

    @resource("counter://multiples/{factor}")
    def read_multiple(self, factor: int) -> dict[str, int]:
        """A multiple of the total."""
        return {"multiple": self.total * factor}


class Bare(World):
    """Has one tool and no resources; `act` does what `how` says."""

    NAME = "bare"
    closed = 0

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> str:
        if config.get("reset") == "raises":
            raise OSError("no such lake")
        if config.get("reset") == "dies":
            os.write(2, b"no display found")
            os._exit(3)
        if config.get("reset") == "hangs":
            time.sleep(3600)
        return "ready"

    @tool
    def act(
        self, how: Literal["well", "raises", "hangs", "no json", "no number", "text", "no end", "dies", "slow"]
    ) -> Step:
        """Do something."""
        match how:
            case "raises":
                raise ZeroDivisionError("by zero")
            case "hangs":
                time.sleep(3600)
            case "no json":
                return Step(object())
            case "no number":
                return Step("so", float("nan"))
            case "text":
                return Step("so", "1")  # type: ignore[arg-type]
            case "no end":
                return Step("so", 1.0, "false")  # type: ignore[arg-type]
            case "dies":
                os._exit(3)
            case "slow":
                time.sleep(40)
        return Step("well done", 1.0)

    @tool
    def quote(self, words: list[Any], fail: bool = False) -> Step:
        """Say it again."""
        if fail:
            raise KeyError(words)
        return Step({"said": {"words": words}})

    def close(self) -> None:
        type(self).closed += 1
