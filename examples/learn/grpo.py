"""The trainer: cloning a format, and group-relative policy optimisation (GRPO) on samples with recorded logprobs.

A sample is a sequence of tokens, which of them the policy sampled, and the log-probability with which it did. The
advantage of a sample is its rollout's reward less the mean reward of its group; a token's loss is that advantage times
the ratio of its probability now to that when it was sampled, clipped as in PPO. Before the first update of a step that
ratio is 1 within float error for every token, or something between sampling and training is wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from opencode_runs.trainable.samples import TrainingSample
from torch import nn

from examples.learn.model import Transformer
from examples.learn.rollouts import Rollout

EPSILON = 1e-4
"""Of Adam: weights whose gradients are as small as noise should not move as far as the others."""


@dataclass(frozen=True)
class Settings:
    """How it is trained."""

    rate: float = 3e-4
    """Of learning, at the first step; it falls to a tenth at the last."""
    epochs: int = 2
    """Updates on each step's samples."""
    clip: float = 0.2
    """How far a ratio counts from 1."""
    anchor: float = 0.2
    """What a nat of divergence from the cloned policy costs, beside a reward of 1. A group without a success teaches
    nothing, so what is not yet known must stay open; what the cloned policy has decided, such as the format, stays."""
    norm: float = 1.0
    """The largest norm of a gradient."""


@dataclass(frozen=True)
class Batch:
    """Sequences side by side, padded at their ends."""

    tokens: torch.Tensor
    """Ids (samples, length)."""
    mask: torch.Tensor
    """Which tokens train (samples, length - 1), from the second token on: none comes before the first."""
    logprobs: torch.Tensor
    """Those of sampling, in the places of the mask."""
    advantages: torch.Tensor
    """One for each sample: that of its rollout."""
    rollouts: int
    """How many the samples are of; each counts once, however many samples it is."""

    @classmethod
    def of(cls, samples: Sequence[TrainingSample], advantages: Sequence[float], rollouts: int | None = None) -> "Batch":
        """The samples with their advantages; each is a rollout where no number is said."""
        length = max(len(sample.token_ids) for sample in samples)

        def padded(values: Iterable[Sequence[float]], kind: torch.dtype) -> torch.Tensor:
            return torch.tensor([[*row, *[0] * (length - len(row))] for row in values], dtype=kind)

        return cls(
            padded((sample.token_ids for sample in samples), torch.long),
            padded((sample.mask for sample in samples), torch.bool)[:, 1:],
            padded((sample.logprobs for sample in samples), torch.float)[:, 1:],
            torch.tensor(advantages),
            len(samples) if rollouts is None else rollouts,
        )


def means(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The mean reward of each group; one that failed counts for nobody."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        if not rollout.error:
            groups[rollout.group].append(rollout.reward)
    return {name: sum(rewards) / len(rewards) for name, rewards in groups.items()}


def advantages(rollouts: Sequence[Rollout]) -> list[float]:
    """Each rollout's reward less the mean of its group; one that failed has none."""
    of_group = means(rollouts)
    return [0.0 if rollout.error else rollout.reward - of_group[rollout.group] for rollout in rollouts]


@dataclass(frozen=True)
class Measured:
    """What a batch says about the policy before it is updated."""

    mismatch: float
    """The largest difference of a log-probability, recomputed, from the recorded one."""
    entropy: float
    """Of the tokens that a sample trains, together, in nats; the mean over samples."""
    tokens: int
    """How many train."""


class Trainer:
    """Holds the policy's optimizer."""

    def __init__(self, model: Transformer, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        self.cloned = deepcopy(model).requires_grad_(False)
        self.optimizer = torch.optim.Adam(model.parameters(), settings.rate, eps=EPSILON)

    def measure(self, batch: Batch) -> Measured:
        """Look at a batch without learning from it."""
        with torch.inference_mode():
            now, entropy = logprobs_of(self.model, batch)
        apart = (now - batch.logprobs).abs()[batch.mask]
        whole = (entropy * batch.mask).sum() / len(batch.tokens)
        return Measured(float(apart.max()) if len(apart) else 0.0, float(whole), len(apart))

    def learn(self, batch: Batch, done: float = 0.0) -> None:
        """Update the policy; samples without any advantage teach nothing.

        Args:
            batch: of one step.
            done: the part of the run that lies behind, 0 to 1.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate * (1 - 0.9 * done)
        now = replace(self.settings, anchor=self.settings.anchor * (1 - done) ** 2)
        teaching = batch.advantages != 0
        if not teaching.any():
            return
        for _ in range(self.settings.epochs):
            self._update(policy_loss(self.model, batch, now, self.cloned))

    def clone(self, *batches: Batch) -> float:
        """One update towards saying what the samples say; returns the loss, in nats per token."""
        said = torch.stack([(logprobs_of(self.model, batch)[0] * batch.mask).sum() for batch in batches]).sum()
        loss = -said / sum(batch.mask.sum() for batch in batches)
        self._update(loss)
        return float(loss.detach())

    def _update(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.norm)
        self.optimizer.step()


def logprobs_of(
    model: Transformer, batch: Batch, other: Transformer | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token that trains, from the second on, and the entropy there (samples, length - 1); else
    zeros. With another model the divergence from that, KL(model || other), is what comes second.

    Samples of about one length are looked at together, so that a long one costs the others nothing.
    """
    chosen, second = torch.zeros(batch.mask.shape), torch.zeros(batch.mask.shape)
    lengths = (batch.mask * torch.arange(1, batch.mask.shape[1] + 1)).amax(1)
    doublings = lengths.float().log2()  # minus infinity where nothing trains
    for doubling in doublings[lengths > 0].floor().unique():
        rows = (doublings.floor() == doubling).nonzero()[:, 0]
        length = int(lengths[rows].max())
        tokens = batch.tokens[rows, : length + 1]
        distribution = model(tokens[:, :-1]).log_softmax(-1)
        chosen[rows, :length] = distribution.gather(2, tokens[:, 1:, None])[..., 0]
        nats = -distribution if other is None else distribution - other(tokens[:, :-1]).log_softmax(-1)
        second[rows, :length] = (distribution.exp() * nats).sum(-1)
    return chosen, second


def policy_loss(model: Transformer, batch: Batch, settings: Settings, cloned: Transformer) -> torch.Tensor:
    """PPO's clipped loss and what the divergence from the cloned policy costs, summed over the tokens of a rollout, as
    a mean over rollouts."""
    now, divergence = logprobs_of(model, batch, cloned)
    ratio = ((now - batch.logprobs) * batch.mask).exp()
    advantage = batch.advantages[:, None]
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantage)
    return -((gain - settings.anchor * divergence) * batch.mask).sum() / batch.rollouts
