"""Running figures of one task: constant memory however many attempts it has.

Sources of the formulas: unbiased pass@k = 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, "Evaluating Large Language
Models Trained on Code"); mean and variance in one pass by Welford's recurrence.
"""

import math
from dataclasses import dataclass

from opencode_runs.difficulty.attempt import Attempt, Failure

PASS_SLACK = 1e-9
"""A reward this far below the threshold still passes: weighted sums of floats are not exact."""


def pass_at_k(attempts: int, passes: int, k: int) -> float | None:
    """The unbiased probability that at least one of `k` attempts passes; None if fewer than `k` were made."""
    if k < 1 or attempts < k:
        return None
    return 1.0 - math.comb(attempts - passes, k) / math.comb(attempts, k)


@dataclass(slots=True)
class Tally:
    task_id: str | None = None
    task_name: str | None = None
    task_prompt: str | None = None
    attempts: int = 0
    passes: int = 0
    errors: int = 0
    unscored: int = 0
    timed_out: int = 0
    mean_reward: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean reward (Welford's M2)."""
    turns: int = 0
    tokens: int = 0
    tokens_known: int = 0
    """How many attempts reported tokens."""

    def add(self, outcome: Attempt | Failure, threshold: float) -> None:
        """Count one outcome; an attempt passes when its reward is at least `threshold`."""
        if isinstance(outcome, Failure):
            self.errors += not outcome.unscored
            self.unscored += outcome.unscored
            return
        self.attempts += 1
        self.passes += outcome.reward >= threshold - PASS_SLACK
        self.timed_out += outcome.timed_out
        delta = outcome.reward - self.mean_reward
        self.mean_reward += delta / self.attempts
        self.squares += delta * (outcome.reward - self.mean_reward)
        self.turns += outcome.turns
        if outcome.tokens is not None:
            self.tokens += outcome.tokens
            self.tokens_known += 1

    @property
    def avg_reward(self) -> float | None:
        """Mean reward of the attempts, None without one."""
        return self.mean_reward if self.attempts else None

    @property
    def reward_stderr(self) -> float | None:
        """Standard error of the mean reward, None below two attempts."""
        if self.attempts < 2:
            return None
        return math.sqrt(max(0.0, self.squares) / (self.attempts - 1) / self.attempts)

    @property
    def pass_rate(self) -> float | None:
        """Share of attempts that passed, None without one."""
        return self.passes / self.attempts if self.attempts else None

    @property
    def mean_turns(self) -> float | None:
        """Mean model turns per attempt, None without one."""
        return self.turns / self.attempts if self.attempts else None

    @property
    def mean_tokens(self) -> float | None:
        """Mean tokens of the attempts that reported them, None if none did."""
        return self.tokens / self.tokens_known if self.tokens_known else None
