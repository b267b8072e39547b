"""A step of a world as an entry of the ledger.

Invariant: what a world gave in a wrong type is its failure, named, and never read as something else: the text "false"
is not an end and the text "1" no reward.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from opencode_simulation.ledger import LedgerEntry
from opencode_simulation.plain_json import world_json
from opencode_simulation.world import Step


def entry_of(number: int, tool: str, arguments: dict[str, JsonValue], step: Step, shown: JsonValue) -> LedgerEntry:
    """The entry of the `number`-th step, whose observation the agent sees as `shown`.

    Raises:
        TypeError: the reward, an end or the info has a wrong type.
        ValidationError: the reward is not finite.
    """
    if not isinstance(step.info, Mapping):
        raise TypeError(f"info is not a mapping but {type(step.info).__name__}")
    info: Any = world_json(dict(step.info), "info")
    return LedgerEntry(
        step=number,
        tool=tool,
        arguments=arguments,
        observation=shown,
        reward=_reward(step.reward),
        terminated=_flag(step.terminated, "terminated"),
        truncated=_flag(step.truncated, "truncated"),
        info=info,
    )


def _reward(value: Any) -> float:
    """What a world calls a number; numpy's are some, too."""
    if not isinstance(value, str | bytes | bytearray):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"the reward is not a number: {error}") from error
    raise TypeError(f"the reward is not a number but {type(value).__name__}")


def _flag(value: Any, what: str) -> bool:
    if value not in (True, False):
        raise TypeError(f"{what} is neither true nor false but {type(value).__name__}")
    return bool(value)
