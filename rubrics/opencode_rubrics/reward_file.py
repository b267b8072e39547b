"""The reward file: the place where a verify command may write a reward of its own, if its row asks for that.

Invariant: what is read there was written after the place was made new (see `scoring_home`), so nothing that the agent
planted can stand in it. A file that is not a number within the bounds is a 0 with a reason: the agent's code may have
made it so as well as a mistake of the row's, and failing must not be free.
"""

import math
from dataclasses import dataclass

import verifiers.v1 as vf
from agent_sandbox.toolbox.bounded_file import FileState, read_bounded_text
from agent_sandbox.toolbox.scoring_home import REWARD_PATH

_MAX_BYTES = 4096
_ROUNDING = 1e-9
"""How far beyond a bound a sum of floats may lie."""


@dataclass(frozen=True)
class WrittenReward:
    """What the reward file gave; `problem` says why it gave nothing, and the reward is 0 then."""

    reward: float = 0.0
    problem: str = ""


async def read_reward_file(runtime: vf.Runtime, lowest: float, highest: float) -> WrittenReward:
    """The number that a verify command wrote, between `lowest` and `highest`."""
    found = await read_bounded_text(runtime, REWARD_PATH, _MAX_BYTES)
    if found.state is not FileState.TEXT:
        return WrittenReward(problem=f"{REWARD_PATH} is {found.state.name.lower().replace('_', ' ')}")
    content = found.text.strip()
    reward = _finite_float(content)
    if reward is None:
        return WrittenReward(problem=f"{REWARD_PATH} holds {content[:200]!r}, which is not a finite number")
    if not lowest - _ROUNDING <= reward <= highest + _ROUNDING:
        return WrittenReward(problem=f"{REWARD_PATH} holds {content[:200]}, which is not in [{lowest:g}, {highest:g}]")
    return WrittenReward(min(max(reward, lowest), highest))


def _finite_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    # Python reads "1_0" as 10; a scorer that writes it is broken.
    return value if math.isfinite(value) and "_" not in text else None
