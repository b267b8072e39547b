"""What goes wrong between sampling and training, on purpose, to see that it is seen and that it does not learn."""

import random
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.echo import OpenCodeEcho
from opencode_env.cli_agent.interception.history import EchoRules, Wire
from opencode_runs.trainable.samples import TrainingSample
from verifiers.v1.types import AssistantMessage

from examples.learn.rollouts import Rollout


class Break(StrEnum):
    """A kind of mistake."""

    MASK = "mask"
    """Each mask is shifted by one token, and the log-probabilities, which are those of its true entries, with it."""
    LOGPROBS = "logprobs"
    """The log-probabilities of a sample are shuffled."""
    ECHO = "echo"
    """What OpenCode rewrites in its model's answers is not restored."""
    REWARDS = "rewards"
    """Rewards are swapped between rollouts."""
    STALE = "stale"
    """Half of the samples are those of the policy as it was at the first step."""


class _Unknown(OpenCodeEcho):
    """Which conversation a call belongs to, and nothing of what comes back in it."""

    def recognise(self, sampled: AssistantMessage, echo: Wire) -> None:
        return None


class NoEchoConfig(OpenCodeHarnessConfig):
    """OpenCode, whose history is believed as it comes back."""

    def echo_rules(self) -> EchoRules:
        return _Unknown()


class Breaker:
    """Makes one kind of mistake in every step, or none."""

    def __init__(self, kind: Break | None, seed: int) -> None:
        self.kind = kind
        self._draw = random.Random(seed)
        self._first: Sequence[Rollout] | None = None

    def __call__(self, rollouts: Sequence[Rollout]) -> Sequence[Rollout]:
        """The rollouts of a step as they reach the trainer."""
        if self.kind is Break.REWARDS:
            rewards = [rollout.reward for rollout in rollouts]
            self._draw.shuffle(rewards)
            return [replace(rollout, reward=reward) for rollout, reward in zip(rollouts, rewards, strict=True)]
        if self.kind is Break.STALE:
            self._first = self._first or rollouts
            old = set(self._draw.sample(range(len(rollouts)), len(rollouts) // 2))
            return [self._first[i] if i in old else rollout for i, rollout in enumerate(rollouts)]
        change = {Break.MASK: self._shifted, Break.LOGPROBS: self._shuffled}.get(self.kind or Break.ECHO)
        if change is None:
            return rollouts
        return [replace(rollout, samples=[*map(change, rollout.samples)]) for rollout in rollouts]

    def _shifted(self, sample: TrainingSample) -> TrainingSample:
        return replace(sample, mask=[False, *sample.mask[:-1]], logprobs=[0.0, *sample.logprobs[:-1]])

    def _shuffled(self, sample: TrainingSample) -> TrainingSample:
        places = [place for place, own in enumerate(sample.mask) if own]
        logprobs = list(sample.logprobs)
        for place, other in zip(places, self._draw.sample(places, len(places)), strict=True):
            logprobs[place] = sample.logprobs[other]
        return replace(sample, logprobs=logprobs)
