"""What must hold in every step of a sound run, whatever the policy does, and the name of what does not."""

from collections.abc import Sequence

from examples.learn.grpo import Measured
from examples.learn.rollouts import Rollout

FLOAT_ERROR = 1e-3
"""Of a log-probability. A batch with a cache and one without add up the same numbers in different orders."""


def findings(rollouts: Sequence[Rollout], measured: Measured) -> list[str]:
    """What is wrong with a step, before its update; empty if nothing is."""
    found = []
    if not measured.mismatch <= FLOAT_ERROR:
        found.append(
            "the importance ratio before the first update is not 1 (log-probabilities differ by "
            f"{measured.mismatch:.2g}): mask, log-probabilities or policy are not those of sampling"
        )
    if forks := sum(rollout.forks for rollout in rollouts):
        found.append(f"{forks} forks: a history came back that was not what was sampled")
    if wrong := sum(abs(rollout.reward - rollout.derived) > 1e-6 for rollout in rollouts):
        found.append(f"{wrong} rewards are not what their own verify commands say")
    return found
