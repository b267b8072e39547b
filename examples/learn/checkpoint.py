"""The cloned policy: it says the format and any content, and is kept for the next run that would make the same one."""

import hashlib
import math
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from opencode_runs.trainable.samples import TrainingSample

from examples.learn import curriculum as curricula
from examples.learn import grpo, model, tokenizer, transcript
from examples.learn.curriculum import Curriculum, Filling
from examples.learn.grpo import Batch, Settings, Trainer
from examples.learn.model import Shape, Transformer
from examples.learn.transcript import Transcript

STEPS = 200
RATE = 3e-3
"""Of learning, at its highest."""


def key_of(recorded: Sequence[Transcript], curriculum: Curriculum, words: Any, seed: int) -> str:
    """Names everything that makes a cloned policy what it is.

    Of what was recorded these are its tokens: what the system prompt says, today's date for one, is a single one.
    """
    kinds = [sys.modules[kind.__module__] for kind in type(curriculum).__mro__ if kind is not object]
    modules = (*kinds, curricula, grpo, model, tokenizer, transcript, sys.modules[__name__])
    code = [Path(str(module.__file__)).read_text() for module in modules]
    tokens = [one.encoded(words) for one in recorded]
    parts = [repr(tokens), str(len(words)), repr(curriculum), str(seed), torch.__version__, *code]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def cloned(
    recorded: Sequence[Transcript], curriculum: Curriculum, words: Any, seed: int, cache: Path
) -> tuple[Transformer, bool]:
    """The policy that has the format only, and whether it was in the cache."""
    torch.manual_seed(seed)
    policy = Transformer(Shape(len(words)))
    kept = cache / f"{key_of(recorded, curriculum, words, seed)}.pt"
    if kept.exists():
        policy.load_state_dict(torch.load(kept, weights_only=True))
        return policy, True
    trainer, draw = Trainer(policy, Settings(rate=RATE)), random.Random(seed)
    for step in range(STEPS):
        for group in trainer.optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 10) * (1 + math.cos(math.pi * step / STEPS)) / 2
        shown = [*curriculum.demonstrations(draw)]
        trainer.clone(*(_batch(conversation, shown, words) for conversation in recorded))
    cache.mkdir(parents=True, exist_ok=True)
    keep(policy.state_dict(), kept)
    return policy, False


def _batch(conversation: Transcript, shown: Sequence[Filling], words: Any) -> Batch:
    encoded = (conversation.filled(filling).encoded(words) for filling in shown)
    samples = [TrainingSample(0, (), (), tokens, mask, [0.0] * len(tokens)) for tokens, mask in encoded]
    return Batch.of(samples, [0.0] * len(samples))


def keep(weights: Mapping[str, Any], path: Path) -> None:
    """Save a policy; there is never half of one under its name."""
    part = path.with_suffix(f".{os.getpid()}")
    torch.save(weights, part)
    part.replace(path)
