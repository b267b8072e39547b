"""Runs made by hand: sound episodes of a training client, and ways to spoil them."""

from pathlib import Path
from typing import Any

from tests.difficulty import lines
from tests.trainable.graphs import Line, answer, calls, prompt


def nodes() -> list[Line]:
    """A conversation of two turns: 8 tokens, of which 3 train."""
    return [prompt(None, 1, 2), answer(0, 4, 5, head=(3,)), prompt(1, 6), answer(2, 8, head=(7,))]


def trace(reward: float | None = 1.0, **changes: Any) -> Line:
    """A sound trace with tokens and the calls of its nodes; None is one without any reward."""
    rewards = {} if reward is None else {"correct": {"score": reward, "weight": 1.0}}
    made = lines.trace(0.0, id=f"{next(_IDS):08x}", nodes=nodes(), rewards=rewards) | changes
    return {"calls": calls(made["nodes"], made["agent"]["config"]["model"])} | made


def sub(reward: float | None = 1.0, **changes: Any) -> Line:
    """A sound trace of sub calls that trains."""
    return trace(reward, **{"agent": lines.seat("sub")} | changes)


_IDS = iter(range(10**6))


def group(*rewards: float, key: str = "half") -> list[Line]:
    """Sound rollouts of one task."""
    return [lines.episode(key, trace(reward), task_id=key) for reward in rewards]


def run(folder: Path, *traces: Line, config: Line | None = None, **episode: Any) -> Path:
    """A run of a sound group of two, and one episode of another task with these traces."""
    other = lines.episode("other", *traces, task_id="other", **episode)
    return lines.write_run(folder / "run", [*group(0, 1), other], config=config)
