"""Groups of rollouts, and the advantages that a trainer computes within each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opencode_runs.trainable.evidence import SETTINGS
from opencode_runs.trainable.figures import NO_TOKENS, GroupFigures, TraceFigures
from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.histories import canonical, hashable
from opencode_runs.trainable.record import TokenEpisode, TokenTrace

_COMPARED = (*SETTINGS, "min_tokens", "chat_template_kwargs")


@dataclass
class Mixture:
    """The values that each aspect has in the group."""

    _values: dict[str, dict[int, str]] = field(default_factory=dict)
    """By a hash: of a long one only its number is said."""
    _alike: set[int] = field(default_factory=set)
    """What was taken up, as a whole: most rollouts of a group say the same."""

    def add(self, episode: TokenEpisode) -> None:
        """Take up a rollout; of what failed nothing trains, so that it may differ."""
        if self._is_new([episode.task, episode.env, episode.task_data, episode.task_hash]):
            self._note("tasks", episode.task)
            self._note("environments", episode.env)
            self._note_content("contents of the task", episode.task_data, episode.task_hash)
        for trace in episode.traces:
            if trace.ok and not trace.wrong_types:
                self._note(f'answers to whether seat "{trace.seat}" trains', trace.trainable)
            if trace.ok and trace.trainable and episode.ok:
                self._add_trace(trace)

    def found(self) -> str:
        """The first aspect that has several values; empty if there is none."""
        return next(self._found(), "")

    def _found(self) -> Iterator[str]:
        for aspect, values in self._values.items():
            if len(values) > 1:
                named = [value for value in values.values() if value]
                yield f"{len(values)} {aspect}{': ' if named else ''}{', '.join(named)}"

    def _is_new(self, values: list[Any]) -> bool:
        known = hash(hashable(values))
        new = known not in self._alike
        self._alike.add(known)
        return new

    def _add_trace(self, trace: TokenTrace) -> None:
        weights = [(name, reward.weight) for name, reward in trace.rewards.items() if reward is not None]
        told = [trace.seat, trace.model, trace.sampling, trace.task_key, trace.task_data, trace.task_hash, weights]
        if not self._is_new(told):
            return
        seat = f'of seat "{trace.seat}"'
        self._note(f"models {seat}", trace.model)
        for name in _COMPARED:
            self._note(f"values of {name} {seat}", (trace.sampling or {}).get(name))
        self._note(f"tasks {seat}", trace.task_key)
        self._note_content(f"contents of the task {seat}", trace.task_data, trace.task_hash)
        for name, weight in weights:
            self._note(f'weights of the reward "{name}" {seat}', weight)

    def _note_content(self, aspect: str, data: Any, content_hash: str | None) -> None:
        """A row's number and the hash that covers it may change from run to run, also within one that was resumed."""
        row = data.get("idx") if isinstance(data, dict) else None
        rest = {name: value for name, value in data.items() if name != "idx"} if isinstance(data, dict) else data
        self._note(aspect, canonical(rest), said="")
        if content_hash is not None:
            self._note(f"hashes of row {row}: {aspect}", content_hash)

    def _note(self, aspect: str, value: Any, said: str | None = None) -> None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # one number, however it is spelled
        known = hash((value,) if value is None or isinstance(value, str) else canonical(value))
        self._values.setdefault(aspect, {}).setdefault(known, f"{value}" if said is None else said)


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
