"""A format, its tokenizer, a policy that was never trained, and its rollouts without an agent."""

import random
from dataclasses import dataclass
from typing import Any

import torch

from examples.learn.bare import play_bare
from examples.learn.contextual import Contextual
from examples.learn.curriculum import QUESTION
from examples.learn.grpo import Batch, advantages
from examples.learn.model import Shape, Transformer, sample
from examples.learn.rollouts import Rollout
from examples.learn.spoken import Spoken
from examples.learn.tokenizer import END, build_tokenizer
from examples.learn.transcript import Transcript

PROMPT = f"<|im_start|>system\nYou work.<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
_RESULT = "\n<|im_start|>user\n(no output)<|im_end|>\n<|im_start|>assistant\n"
RECORDED = Transcript((PROMPT, _RESULT), tuple(text + END for text in Contextual().scripts[0]))


@dataclass
class Setting:
    """A policy and what it speaks."""

    words: Any
    policy: Transformer
    noise: torch.Generator

    def speak(self, prompts: Any, longest: int = 12) -> list[Spoken]:
        """Its answers."""
        stops = frozenset({self.words.convert_tokens_to_ids(END)})
        return sample(self.policy, prompts, stops, longest, self.noise)

    def rollouts(self) -> list[Rollout]:
        """Two of each of four problems, without an agent; the second of each counts as solved."""
        problems = [(problem.name, problem) for problem in Contextual().fresh(random.Random(0), 4) for _ in range(2)]
        played = play_bare(self.speak, [RECORDED], self.words, Contextual(), problems)
        return [
            Rollout(one.group, float(place % 2), one.samples, derived=float(place % 2))
            for place, one in enumerate(played)
        ]


def setting(seed: int = 0) -> Setting:
    """A small one."""
    torch.manual_seed(seed)
    words = build_tokenizer(RECORDED.constants, [RECORDED.rest])
    policy = Transformer(Shape(len(words), width=32, heads=2))
    return Setting(words, policy, torch.Generator().manual_seed(seed))


def batch_of(rollouts: list[Rollout]) -> Batch:
    """All samples with their advantages."""
    gains = advantages(rollouts)
    pairs = [(one, gain) for rollout, gain in zip(rollouts, gains, strict=True) for one in rollout.samples]
    return Batch.of([one for one, _ in pairs], [gain for _, gain in pairs])
