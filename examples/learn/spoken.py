"""What a model says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spoken:
    """One answer."""

    tokens: list[int]
    logprobs: list[float]
    stopped: bool
    """Whether it ends with a token that stops; else it was cut off at its length."""


Speaker = Callable[[Sequence[Sequence[int]]], list[Spoken]]
"""What answers a batch of prompts: a model, or what plays one."""
