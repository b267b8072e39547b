"""Groups of rollouts, and the advantages that a trainer computes within each."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opencode_runs.trainable.evidence import SETTINGS
from opencode_runs.trainable.figures import NO_TOKENS, GroupFigures, TraceFigures
from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.histories import canonical, hashable
from opencode_runs.trainable.record import TokenEpisode, TokenTrace

_COMPARED = (*SETTINGS, "min_tokens", "chat_template_kwargs")
MAX_KNOWN = 4000
"""Of what rollouts say, kept to be said again."""
Note = tuple[str, int, str]
"""An aspect of a rollout, a hash of its value, and what is said of it: of a long one only its number is."""
Told = tuple[int, list[Note]]
"""What a rollout, or a trace of it, says of its group: a hash of the whole, and its parts."""


@dataclass
class Telling:
    """What rollouts say of their groups; most of a group say the same, which is worked out once."""

    _known: dict[int, list[Note]] = field(default_factory=dict)

    def of(self, episode: TokenEpisode) -> list[Told]:
        """What a rollout says; of what failed nothing trains, so that it may differ."""
        told = [self._told([episode.task, episode.env, episode.task_data, episode.task_hash], _notes, episode)]
        for trace in episode.traces:
            if trace.ok and not trace.wrong_types:
                told.append(self._told((trace.seat, trace.trainable), _seat_notes, trace))
            if trace.ok and trace.trainable and episode.ok:
                weights = [(name, reward.weight) for name, reward in trace.rewards.items() if reward is not None]
                told.append(self._told([trace.seat, trace.model, trace.sampling], _settings_notes, trace))
                task = [trace.seat, trace.task_key, trace.task_data, trace.task_hash, weights]
                told.append(self._told(task, _task_notes, trace))
        return told

    def _told(self, values: Sequence[Any], notes: Callable[[Any], Iterator[Note]], source: Any) -> Told:
        whole = hash(hashable(values))
        if whole not in self._known:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[whole] = list(notes(source))
        return whole, self._known[whole]


def _notes(episode: TokenEpisode) -> Iterator[Note]:
    yield _note("tasks", episode.task)
    yield _note("environments", episode.env)
    yield from _content_notes("contents of the task", episode.task_data, episode.task_hash)


def _seat_notes(trace: TokenTrace) -> Iterator[Note]:
    yield _note(f'answers to whether seat "{trace.seat}" trains', trace.trainable)


def _settings_notes(trace: TokenTrace) -> Iterator[Note]:
    seat = f'of seat "{trace.seat}"'
    yield _note(f"models {seat}", trace.model)
    for name in _COMPARED:
        yield _note(f"values of {name} {seat}", (trace.sampling or {}).get(name))


def _task_notes(trace: TokenTrace) -> Iterator[Note]:
    seat = f'of seat "{trace.seat}"'
    yield _note(f"tasks {seat}", trace.task_key)
    yield from _content_notes(f"contents of the task {seat}", trace.task_data, trace.task_hash)
    for name, reward in trace.rewards.items():
        if reward is not None:
            yield _note(f'weights of the reward "{name}" {seat}', reward.weight)


def _content_notes(aspect: str, data: Any, content_hash: str | None) -> Iterator[Note]:
    """A row's number and the hash that covers it may change from run to run, also within one that was resumed."""
    row = data.get("idx") if isinstance(data, dict) else None
    rest = {name: value for name, value in data.items() if name != "idx"} if isinstance(data, dict) else data
    yield _note(aspect, canonical(rest), said="")
    if content_hash is not None:
        yield _note(f"hashes of row {row}: {aspect}", content_hash)


def _note(aspect: str, value: Any, said: str | None = None) -> Note:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # one number, however it is spelled
    known = hash((value,) if value is None or isinstance(value, str) else canonical(value))
    # Thousands of rollouts have the same few of them, also on their way to another process.
    return sys.intern(aspect), known, sys.intern(f"{value}") if said is None else said


@dataclass
class Mixture:
    """The values that each aspect has in the group."""

    _values: dict[str, dict[int, str]] = field(default_factory=dict)
    _alike: set[int] = field(default_factory=set)
    """What was taken up, as a whole."""

    def add(self, told: Iterable[Told]) -> None:
        for whole, notes in told:
            if whole not in self._alike:
                self._alike.add(whole)
                for aspect, known, said in notes:
                    self._values.setdefault(aspect, {}).setdefault(known, said)

    def found(self) -> str:
        """The first aspect that has several values; empty if there is none."""
        for aspect, values in self._values.items():
            if len(values) > 1:
                named = [value for value in values.values() if value]
                return f"{len(values)} {aspect}{': ' if named else ''}{', '.join(named)}"
        return ""


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
