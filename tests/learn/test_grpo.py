"""Advantages, masks and ratios, and that every mistake between sampling and training is named."""

from copy import deepcopy

import pytest
import torch
from opencode_runs.trainable.samples import TrainingSample

from examples.learn.breaking import Break, Breaker
from examples.learn.grpo import Batch, Settings, Trainer, advantages, logprobs_of, policy_loss
from examples.learn.rollouts import Rollout
from examples.learn.sanity import FLOAT_ERROR, findings
from tests.learn.setting import batch_of, setting


def test_an_advantage_is_the_reward_less_the_mean_of_the_group_without_what_failed() -> None:
    rollouts = [
        Rollout("a", 1.0), Rollout("b", 1.0), Rollout("a", 0.0), Rollout("a", error="gone"), Rollout("b", 1.0),
        Rollout("c", 0.25),
    ]  # fmt: skip
    assert advantages(rollouts) == [0.5, 0.0, -0.5, 0.0, 0.0, 0.0]


def test_a_mask_and_its_logprobs_stand_with_the_prediction_of_their_token() -> None:
    sample = TrainingSample(0, (), (), [7, 8, 9], [False, False, True], [0.0, 0.0, -2.0])
    longer = TrainingSample(0, (), (), [1, 2, 3, 4], [False, True, True, False], [0.0, -1.0, -3.0, 0.0])
    batch = Batch.of([sample, longer], [1.0, -1.0])
    assert batch.tokens.tolist() == [[7, 8, 9, 0], [1, 2, 3, 4]]
    assert batch.mask.tolist() == [[False, True, False], [True, True, False]]
    assert batch.logprobs.tolist() == [[0.0, -2.0, 0.0], [-1.0, -3.0, 0.0]]


def test_before_the_first_update_every_ratio_is_one_and_after_it_not() -> None:
    made = setting()
    batch, trainer = batch_of(made.rollouts()), Trainer(made.policy, Settings())
    before = trainer.measure(batch)
    assert before.mismatch < FLOAT_ERROR / 10
    assert before.tokens == int(batch.mask.sum()) > 0
    trainer.learn(batch)
    assert trainer.measure(batch).mismatch > 10 * before.mismatch


def test_the_gradient_is_that_of_the_advantage_times_the_logprob() -> None:
    made = setting()
    batch = batch_of(made.rollouts())
    plain = (logprobs_of(made.policy, batch)[0] * batch.mask * batch.advantages[:, None]).sum() / len(batch.tokens)
    wanted = torch.autograd.grad(-plain, list(made.policy.parameters()))
    loss = policy_loss(made.policy, batch, Settings(anchor=0.0), made.policy)
    found = torch.autograd.grad(loss, list(made.policy.parameters()))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_what_is_outside_the_mask_changes_nothing() -> None:
    made = setting()
    batch = batch_of(made.rollouts())
    loss = policy_loss(made.policy, batch, Settings(), made.policy).detach()
    moved = Batch(
        batch.tokens, batch.mask, torch.where(batch.mask, batch.logprobs, -9.0), batch.advantages, batch.rollouts
    )
    assert torch.allclose(policy_loss(made.policy, moved, Settings(), made.policy).detach(), loss, atol=1e-6)


def test_divergence_from_the_cloned_policy_costs_nothing_at_first_and_then_leads_back() -> None:
    made = setting()
    batch = batch_of(made.rollouts())
    batch = Batch(batch.tokens, batch.mask, batch.logprobs, torch.zeros_like(batch.advantages), batch.rollouts)
    cloned, settings = deepcopy(made.policy), Settings(anchor=1.0)
    assert policy_loss(made.policy, batch, settings, cloned).item() == pytest.approx(0.0, abs=1e-5)
    with torch.no_grad():
        for weight in made.policy.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    apart = policy_loss(made.policy, batch, settings, cloned)
    slopes = torch.autograd.grad(apart, list(made.policy.parameters()))
    with torch.no_grad():
        for weight, slope in zip(made.policy.parameters(), slopes, strict=True):
            weight -= 1e-5 * slope
    assert 0 < policy_loss(made.policy, batch, settings, cloned).item() < apart.item()


def test_learning_makes_the_better_rollouts_likelier_than_the_worse() -> None:
    made = setting()
    batch, trainer = batch_of(made.rollouts()), Trainer(made.policy, Settings(rate=1e-3, anchor=0.0))

    def lead() -> float:
        whole = (logprobs_of(made.policy, batch)[0] * batch.mask).sum(-1)
        return float(((whole.detach() - (batch.logprobs * batch.mask).sum(-1)) * batch.advantages).sum())

    assert lead() == pytest.approx(0.0, abs=1e-3)
    trainer.learn(batch)
    assert lead() > 0.01


def test_without_any_advantage_nothing_is_learnt() -> None:
    made = setting()
    batch = batch_of([Rollout(one.group, 1.0, one.samples) for one in made.rollouts()])
    weights = [weight.clone() for weight in made.policy.parameters()]
    Trainer(made.policy, Settings()).learn(batch)
    assert all(torch.equal(one, other) for one, other in zip(weights, made.policy.parameters(), strict=True))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (None, ""),
        (Break.MASK, "importance ratio"),
        (Break.LOGPROBS, "importance ratio"),
        (Break.STALE, "importance ratio"),
        (Break.REWARDS, "verify commands"),
    ],
)
def test_a_mistake_between_sampling_and_training_is_named(kind: Break | None, says: str) -> None:
    made, breaker = setting(), Breaker(kind, seed=0)
    trainer = Trainer(made.policy, Settings(rate=1e-3))
    found: list[str] = []
    for _ in range(3):
        rollouts = list(breaker(made.rollouts()))
        batch = batch_of(rollouts)
        found += findings(rollouts, trainer.measure(batch))
        trainer.learn(batch)
    assert [says in one for one in found] == [True] * len(found)
    assert bool(found) == (kind is not None)


def test_a_rollout_counts_once_however_many_samples_it_is() -> None:
    made = setting()
    rollouts = made.rollouts()
    samples, gains = [one for rollout in rollouts for one in rollout.samples], [*range(1, len(rollouts) + 1)]
    several = Batch.of([*samples, *samples], [*gains, *gains], len(rollouts))
    once = policy_loss(made.policy, Batch.of(samples, gains), Settings(), made.policy)
    assert several.rollouts == len(rollouts)
    assert torch.allclose(policy_loss(made.policy, several, Settings(), made.policy), 2 * once, atol=1e-5)
