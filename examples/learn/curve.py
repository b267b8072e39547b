"""One step's figures as a line, and a run's as a plot: in the terminal, and as a picture."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

HEADER = "step rollouts reward  mixed  tokens  mismatch  entropy  errors  forks  seconds"
_HEIGHT = 10


@dataclass(frozen=True)
class Step:
    """What one step was."""

    number: int
    rollouts: int
    """So far."""
    reward: float
    """The mean over the rollouts that did not fail."""
    mixed: int
    """Groups whose rewards differ."""
    groups: int
    tokens: int
    """That trained."""
    mismatch: float
    """The largest difference of a log-probability, recomputed, from the recorded one."""
    entropy: float
    """Nats of a sample."""
    errors: int
    forks: int
    seconds: Mapping[str, float]
    """Of the wall clock, to play and to learn; of all rollouts together, in each of their stages."""
    by_group: Mapping[str, float] = field(default_factory=dict)
    """The mean reward of each."""
    sampled: int = 0
    """Tokens that the policy said, trained or not."""
    fresh: float = math.nan
    """The mean reward of fresh rollouts after it, where these were asked for."""

    def line(self) -> str:
        """The figures on one line."""
        times = " ".join(f"{stage} {seconds:.1f}" for stage, seconds in self.seconds.items())
        return (
            f"{self.number:4} {self.rollouts:8} {self.reward:6.2f} {self.mixed:3}/{self.groups:<2} {self.tokens:7} "
            f"{self.mismatch:9.1e} {self.entropy:8.2f} {self.errors:7} {self.forks:6}  {times}"
        )


def rates(steps: Sequence[Step]) -> str:
    """How fast it went, and what share of their time the rollouts were in each stage, on one line."""
    stages = sum((Counter(step.seconds) for step in steps), Counter[str]())
    played, learnt = stages.pop("play"), stages.pop("learn")
    whole = sum(stages.values())
    shares = "".join(f", {stage} {seconds / whole:.1%}" for stage, seconds in stages.most_common())
    clock = played + learnt
    return f"{60 * steps[-1].rollouts / clock:.1f} rollouts a minute; trainer {learnt / clock:.1%} of the clock" + (
        f"; of a rollout{shares[1:]}" if shares else ""
    )


def terminal_plot(steps: Sequence[Step]) -> str:
    """Reward by step, a column for each."""
    rows = []
    for level in range(_HEIGHT, 0, -1):
        marks = ["█" if step.reward * _HEIGHT >= level - 0.5 else " " for step in steps]
        rows.append(f"{level / _HEIGHT:4.1f} │{''.join(marks)}")
    return "\n".join([*rows, "     └" + "─" * len(steps)])


def save_plot(steps: Sequence[Step], chance: float, title: str, path: Path) -> None:
    """Draw reward and entropy over rollouts."""
    figure: Any = import_module("matplotlib.figure").Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    played = [step.rollouts for step in steps]
    axes.plot(played, [step.reward for step in steps], marker="o", label="reward")
    axes.axhline(chance, linestyle=":", color="gray", label="chance")
    axes.set(xlabel="training rollouts", ylabel="mean reward", ylim=(0, 1.05), title=title)
    other = axes.twinx()
    other.plot(played, [step.entropy for step in steps], color="tab:orange", alpha=0.6, label="entropy")
    other.set(ylabel="entropy of a sample, nats")
    axes.legend(loc="lower right")
    figure.savefig(path)
