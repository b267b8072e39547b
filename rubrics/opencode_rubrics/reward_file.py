"""What verify commands and test scripts write as their verdict: `reward.txt`, or, as Harbor's, `reward.json`.

Invariant: what is read there was written after the place was made new (`scoring_home`). What is not a number within the
bounds is a 0 with a reason: the agent's code may have made it so, and failing must not be free. Of a test script the
JSON file, of named numbers or of one number, wins whenever there is one.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import verifiers.v1 as vf
from pydantic import Field, model_validator
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded_text
from rollout_sandbox.toolbox.scoring_home import REWARD_PATH, VERIFIER_DIRECTORY

from opencode_rubrics.rubric import RubricConfig

VERDICT_PATH = f"{VERIFIER_DIRECTORY}/reward.json"
_MAX_BYTES, _MAX_JSON_BYTES = 4096, 1 << 20
_ROUNDING = 1e-9
"""How far beyond a bound a sum of floats may lie."""


class BoundedRewardConfig(RubricConfig):
    """Options of a rubric whose reward is a number that the task's own programs write."""

    reward_min: float = Field(0.0, allow_inf_nan=False)
    """The least that the task's programs may write; a number beyond the bounds is not a verdict."""
    reward_max: float = Field(1.0, allow_inf_nan=False)
    """The most that they may write."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.reward_min > self.reward_max:
            raise ValueError(f"reward_min {self.reward_min:g} is above reward_max {self.reward_max:g}; swap them")
        return self


@dataclass(frozen=True)
class RewardFileVerdict:
    """Holds what was written; `problem` says why that is nothing, and the reward is 0 then."""

    reward: float = 0.0
    others: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by name."""
    problem: str = ""


async def read_reward_file(runtime: vf.Runtime, lowest: float, highest: float) -> RewardFileVerdict:
    """The number that a verify command wrote, between `lowest` and `highest`."""
    found = await read_bounded_text(runtime, REWARD_PATH, _MAX_BYTES)
    if isinstance(found, FileState):
        return RewardFileVerdict(problem=f"{REWARD_PATH} is {found.name.lower().replace('_', ' ')}")
    content = found.strip()
    reward = _finite_float(content)
    if reward is None:
        return RewardFileVerdict(problem=f"{REWARD_PATH} holds {content[:200]!r}, which is not a finite number")
    if not lowest - _ROUNDING <= reward <= highest + _ROUNDING:
        return RewardFileVerdict(
            problem=f"{REWARD_PATH} holds {content[:200]}, which is not in [{lowest:g}, {highest:g}]"
        )
    return RewardFileVerdict(min(max(reward, lowest), highest))


def _finite_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    # Python reads "1_0" as 10; a scorer that writes it is broken.
    return value if math.isfinite(value) and "_" not in text else None


async def read_verdict(runtime: vf.Runtime, key: str, lowest: float, highest: float) -> RewardFileVerdict:
    """The verdict, whose reward is the number named `key`, between `lowest` and `highest`."""
    found = await read_bounded_text(runtime, VERDICT_PATH, _MAX_JSON_BYTES)
    if found is FileState.ABSENT:
        written = await read_reward_file(runtime, lowest, highest)
        absent = f"{REWARD_PATH} is absent"
        problem = f"neither {VERDICT_PATH} nor {REWARD_PATH} was written" if written.problem == absent else ""
        return RewardFileVerdict(written.reward, problem=problem or written.problem)
    if isinstance(found, FileState):
        return RewardFileVerdict(problem=f"{VERDICT_PATH} is {found.name.lower().replace('_', ' ')}")
    numbers = _numbers(found, key)
    if isinstance(numbers, str):
        return RewardFileVerdict(problem=f"{VERDICT_PATH} {numbers}: {found.strip()[:200]!r}")
    reward = numbers.pop(key)
    if not lowest <= reward <= highest:
        return RewardFileVerdict(
            problem=f"{VERDICT_PATH} names a reward of {reward:g}, not in [{lowest:g}, {highest:g}]"
        )
    return RewardFileVerdict(reward, numbers)


def _numbers(text: str, key: str) -> dict[str, float] | str:
    """The named numbers, among them `key`; or what is wrong."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "holds no JSON"
    named = value if isinstance(value, dict) else {key: value}
    if not all(isinstance(number, int | float) for number in named.values()):
        return "holds something else than numbers"
    try:
        numbers = {str(name): float(number) for name, number in named.items()}
    except OverflowError:
        return "holds a number that is too large"
    if not all(map(math.isfinite, numbers.values())):
        return "holds a number that is not finite"
    if key not in numbers:
        return f"names no {key!r} but {', '.join(sorted(numbers)) or 'nothing'} (see reward_key)"
    return numbers
