"""Groups of rollouts, and the advantages that a trainer computes within each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opencode_runs.trainable.figures import NO_TOKENS, GroupFigures, TraceFigures
from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.mixture import Mixture


@dataclass
class Group:
    """The rollouts of one task in one run, or what a trainer dispatched as one group."""

    run: Path
    key: str
    task: str
    asked: int | None
    """Rollouts of each task that the run was asked for."""
    rollouts: int = 0
    traces: list[TraceFigures] = field(default_factory=list)
    mixture: Mixture = field(default_factory=Mixture)

    def figures(self) -> GroupFigures:
        """The figures of the group; gives each of its traces that train its advantage.

        The rule is GRPO's as prime-rl has it (`algo/grpo.py`): reward less the mean over all traces of the group that
        train, those of sub seats included. Where none has tokens, it is what they would get with tokens.
        """
        used = [trace for trace in self.traces if trace.unused_because is None]
        # A run of an evaluation client shows what its groups would teach.
        training = used or [trace for trace in self.traces if trace.unused_because == NO_TOKENS]
        rewards = [trace.reward or 0.0 for trace in training]
        mean = sum(rewards) / len(rewards) if rewards else None
        for trace, reward in zip(training, rewards, strict=True):
            trace.advantage = reward - (mean or 0.0)
        return GroupFigures(
            run=self.run, group=self.key, task=self.task, rollouts=self.rollouts, traces=len(self.traces),
            trained=len(used), mean_reward=mean, spread=max(rewards) - min(rewards) if rewards else None,
        )  # fmt: skip

    def flaws(self, figures: GroupFigures) -> Iterator[tuple[Flaw, str]]:
        """What is wrong with the group."""
        if figures.spread == 0:
            yield Flaw.NO_SPREAD, f"{self.task}: every reward is {figures.mean_reward:g}, of {_rollouts(self.rollouts)}"
        if mixed := self.mixture.found():
            yield Flaw.MIXED, f"{self.task}: {mixed}"
        if not self.traces:
            yield Flaw.FAILED, f"{self.task}: {_rollouts(self.rollouts)} without any trace"
        if self.asked is not None and self.rollouts < self.asked:
            yield Flaw.INCOMPLETE, f"{self.task}: {self.rollouts} of {self.asked} rollouts"


def _rollouts(count: int) -> str:
    return f"{count:,} rollouts" if count > 1 else "one rollout"
