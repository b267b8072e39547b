"""The verdict of a test script, as Harbor's and Terminal-Bench's leave it: `reward.json`, else `reward.txt`.

Invariant: what is read was written after the place was made new (see `scoring_home`). The JSON file wins whenever there
is one; it holds named numbers, or one number.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import verifiers.v1 as vf
from agent_sandbox.toolbox.bounded_file import FileState, read_bounded_text
from agent_sandbox.toolbox.scoring_home import REWARD_PATH, VERIFIER_DIRECTORY

from opencode_rubrics.reward_file import read_reward_file

VERDICT_PATH = f"{VERIFIER_DIRECTORY}/reward.json"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """What the tests said; without a `problem` there is a reward."""

    reward: float = 0.0
    others: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by name."""
    problem: str = ""


async def read_verdict(runtime: vf.Runtime, key: str, lowest: float, highest: float) -> Verdict:
    """The verdict, whose reward is the number named `key`, between `lowest` and `highest`."""
    found = await read_bounded_text(runtime, VERDICT_PATH, _MAX_BYTES)
    if found.state is FileState.ABSENT:
        written = await read_reward_file(runtime, lowest, highest)
        absent = f"{REWARD_PATH} is absent"
        problem = f"neither {VERDICT_PATH} nor {REWARD_PATH} was written" if written.problem == absent else ""
        return Verdict(written.reward, problem=problem or written.problem)
    if found.state is not FileState.TEXT:
        return Verdict(problem=f"{VERDICT_PATH} is {found.state.name.lower().replace('_', ' ')}")
    numbers = _numbers(found.text, key)
    if isinstance(numbers, str):
        return Verdict(problem=f"{VERDICT_PATH} {numbers}: {found.text.strip()[:200]!r}")
    reward = numbers.pop(key)
    if not lowest <= reward <= highest:
        return Verdict(problem=f"{VERDICT_PATH} names a reward of {reward:g}, not in [{lowest:g}, {highest:g}]")
    return Verdict(reward, numbers)


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
