"""What groups from kept turns are worth: sampled tokens to the goal with them ÷ without, from one cloned policy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from examples.learn.command import say
from examples.learn.curve import Step
from examples.learn.run import Plan, Run
from examples.learn.transcript import Transcript

GOAL = 0.7
"""Mean reward of fresh rollouts."""


@dataclass(frozen=True)
class Comparison:
    """Sampled tokens of training to the goal of one seed; None: never reached."""

    seed: int
    branched: int | None
    begun: int | None
    findings: Sequence[str] = ()
    """What was wrong with its runs."""

    @property
    def ratio(self) -> float | None:
        return self.branched / self.begun if self.branched and self.begun else None

    def line(self) -> str:
        """The figures on one line."""
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        return f"seed {self.seed}: with kept turns {_count(self.branched)}, without {_count(self.begun)}, ratio {ratio}"


def _count(tokens: int | None) -> str:
    return "did not reach it" if tokens is None else f"{tokens:,} tokens"


def mean_line(compared: Sequence[Comparison]) -> str:
    """The geometric mean of the ratios, on one line."""
    ratios = [one.ratio for one in compared if one.ratio is not None]
    mean = f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}" if ratios else "-"
    return f"sampled tokens to the goal, with kept turns ÷ without: {mean} ({len(ratios)} of {len(compared)} seeds)"


def tokens_to_goal(steps: Sequence[Step], goal: float) -> int | None:
    """Tokens that the policy said in training until fresh rollouts reached the goal."""
    tokens = 0
    for step in steps:
        tokens += step.sampled
        if step.fresh >= goal:
            return tokens
    return None


async def compare(plan: Plan, recorded: Sequence[Transcript], goal: float) -> Comparison:
    """Train with kept turns and without, each until the goal is reached."""
    reached: dict[bool, int | None] = {}
    found: list[str] = []
    for branch in (True, False):
        directory = plan.directory / ("kept-turns" if branch else "beginnings")
        going = replace(
            plan, directory=directory, branch=branch, enough=lambda steps: tokens_to_goal(steps, goal) is not None
        )
        outcome = await Run(going, recorded, say).go()
        reached[branch] = tokens_to_goal(outcome.steps, goal)
        found += outcome.findings
    return Comparison(plan.seed, reached[True], reached[False], found)
