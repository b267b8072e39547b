"""The same run with prime-rl's code in place of our trainer: its environment server, dispatcher, GRPO, sink and loss.

It runs in the environment that `scripts/try_prime_rl.py` makes. What is prime-rl's comes from its checkout; ours are
engine, policy, cloning and evaluation, as in any run, and the optimizer that its settings describe, on one CPU. Each
step's rollouts are those of the policy as it is then, so that the sanity of a step means the same here.
"""

import json
import math
import random
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from prime_rl.configs.rl import RLConfig
from prime_rl.trainer.rl.loss import compute_loss, setup_rl_loss_fn

from examples.learn.grpo import Batch, Trainer, logprobs_of
from examples.learn.rollouts import LONGEST, TURNS, Rollout, rollout_of, spare
from examples.learn.run import Plan, Play, Run
from scripts.prime_rl_trial.configurations import QWEN3
from scripts.prime_rl_trial.learning import Learner, learner, serving

RATE = 3e-4
"""Of learning, with the AdamW of prime-rl's settings: faster, a policy gives up what it missed."""
MOST = 4
"""Times as many rollouts as a step has: when these have been played and there is no batch, something is wrong."""

LOSS = {"type": "custom", "import_path": "examples.learn.prime_loss.open_loss", "kwargs": {"openness": 0.1}}
"""Its own default has nothing that keeps an answer open which no group has hit yet."""


class PrimeRun(Run):
    """A run whose steps are prime-rl's."""

    _now: Learner
    _source: "_Source"
    _samples: Sequence[Any] = ()
    _whole = True
    """Whether no rollout has failed."""
    _optimizer: torch.optim.Optimizer | None = None

    @asynccontextmanager
    async def training(self, url: str) -> AsyncIterator[None]:
        """Environment server and dispatcher, which waits for a step."""
        work = self.plan.directory.resolve() / "prime-rl"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        config = configuration(self.plan, work, url)
        async with serving(config, work / "configs"), learner(config, work / "run") as self._now:
            self._source = self._now.dispatcher.train_source = _Source(self._now.dispatcher.train_source)
            yield

    async def rollouts(self, play: Play) -> Sequence[Rollout]:
        """What the dispatcher plays until the sink has a batch."""
        now, dispatcher, before = self._now, self._now.dispatcher, len(self._now.episodes)
        self._source.left += self.plan.groups
        while (batch := await now.take()) is None:
            if len(now.episodes) - before >= MOST * self.plan.groups * self.plan.size:
                raise RuntimeError(f"most rollouts failed, the last one with: {now.episodes[-1].errors}")
            if not (self._source.left or dispatcher.groups) and dispatcher.out_q.empty():
                self._source.left += 1  # for what failed and is not part of a batch
        self._samples = batch.samples
        return [rollout_of(str(episode.task.data.id), episode) for episode in now.episodes[before:]]

    def not_of(self, rollouts: Sequence[Rollout], gains: Sequence[float]) -> list[str]:
        """prime-rl's samples that are not the rollouts' own, or have another advantage.

        Where a rollout failed, a batch can hold samples of an earlier step, and groups that are not whole.
        """
        if any(rollout.error for rollout in rollouts):
            self._whole = False
        own = {
            _streams(sample): gain for rollout, gain in zip(rollouts, gains, strict=True) for sample in rollout.samples
        }
        other = sum(
            not all(abs(here - own.get(_streams(one), math.inf)) <= 1e-5 for here in _of_mask(one, one.advantages))
            for one in self._samples
        )
        return [f"{other} samples of prime-rl's batch are not those of the rollouts"] if self._whole and other else []

    def update(self, trainer: Trainer, batch: Batch, done: float) -> None:
        """One step of AdamW on prime-rl's loss of its batch, which holds no sample without an advantage."""
        config = self._now.config.trainer
        if self._samples:
            optim = config.optim
            self._optimizer = self._optimizer or torch.optim.AdamW(
                trainer.model.parameters(), optim.lr, (optim.betas1, optim.betas2), weight_decay=optim.weight_decay
            )
            self._optimizer.zero_grad()
            loss_of(trainer, self._samples, config.loss).backward()
            torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), optim.max_norm)
            self._optimizer.step()
        self._now.progress.step += 1
        self._now.dispatcher.policy.version += 1


def _of_mask(sample: Any, values: Sequence[float]) -> list[float]:
    return [value for own, value in zip(sample.mask, values, strict=True) if own]


def _streams(sample: Any) -> tuple[tuple[float, ...], ...]:
    """Token ids, mask and log-probabilities."""
    return tuple(sample.token_ids), tuple(sample.mask), tuple(_of_mask(sample, sample.logprobs))


class _Source:
    """prime-rl's source of tasks; no more come than were asked for."""

    def __init__(self, source: Any) -> None:
        self.left = 0
        self._source = source

    def next_task(self, *, step: int) -> Any:
        if not self.left:
            return None
        self.left -= 1
        return self._source.next_task(step=step)


def loss_of(trainer: Trainer, samples: Sequence[Any], settings: Any) -> torch.Tensor:
    """prime-rl's loss of its samples, as a mean over their trained tokens."""
    batch = Batch.of(samples, [0.0] * len(samples))
    now = logprobs_of(trainer.model, batch)[0]

    def streams(name: str) -> list[Any]:
        found = [getattr(sample, name) for sample in samples]
        return [None if stream is None else torch.tensor(stream[1:]) for stream in found]

    masks, weights = streams("mask"), streams("rl_weights")
    trained = sum(
        int((mask if weight is None else mask & (weight != 0)).sum())
        for mask, weight in zip(masks, weights, strict=True)
    )
    loss, _ = compute_loss(
        trainer_logprobs=[row[: len(mask)] for row, mask in zip(now, masks, strict=True)],
        inference_logprobs=streams("logprobs"),
        ref_logprobs=None,
        advantages=streams("advantages"),
        loss_mask=masks,
        rl_weights=weights,
        ce_weights=None,
        ref_kl_weights=None,
        rl_loss_fn=setup_rl_loss_fn(settings),
        rl_scale=max(1, trained),
        ce_scale=1,
        ref_kl_scale=1,
    )
    result: torch.Tensor = loss
    return result


def configuration(plan: Plan, work: Path, url: str) -> RLConfig:
    """prime-rl's configuration of a plan: the same agent in the same sandboxes; what is its own is as it comes."""
    rows = work / "tasks.jsonl"
    draw = random.Random(0)
    problems = {one.name: one for _ in range(64) for one in plan.curriculum.problems(draw, plan.groups)}
    lines = [{"id": one.name, "question": one.question, "verify": one.verify} for one in problems.values()]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    harness = {"id": "opencode-env", **spare(OpenCodeHarnessConfig)}
    agent = {"max_turns": TURNS, "runtime": {"type": "subprocess"}, "harness": harness}
    source = {
        "name": "learn",
        "group_size": plan.size,
        "serve": {"pool": {"type": "static", "num_workers": 1}},
        "env": {"taskset": {"id": "opencode-env", "dataset": str(rows)}, "agent": agent},
    }
    orchestrator = {
        "batch_size": plan.groups * plan.size,
        "renderer": QWEN3,
        "env_server_base_port": port,
        "model": {"client": {"base_url": url, "api_key_var": "NO_SUCH_KEY", "skip_model_check": True}},
        "concurrency": {"min_inflight": plan.at_once, "max_inflight": plan.at_once},
        "train": {"sampling": {"temperature": 1.0, "max_completion_tokens": LONGEST}, "source": [source]},
    }
    return RLConfig.model_validate(
        {
            "max_steps": plan.steps,
            "seq_len": 1 << 14,
            "deployment": {"num_train_gpus": 1, "num_infer_gpus": 1},
            "model": {"name": str(plan.directory.resolve() / "tokenizer")},
            "trainer": {"optim": {"lr": RATE}, "loss": LOSS},
            "orchestrator": orchestrator,
        }
    )
