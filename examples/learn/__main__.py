"""`python -m examples.learn`: a policy from nothing that learns on rollouts of real OpenCode."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

import torch

from examples.learn.breaking import Break
from examples.learn.curriculum import Contextual, Copy, Curriculum
from examples.learn.run import Outcome, Plan, Run

CURRICULA: dict[str, type[Curriculum]] = {"contextual": Contextual, "copy": Copy}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.learn", description=__doc__)
    parser.add_argument("curriculum", nargs="?", choices=CURRICULA, default="contextual")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Plan.steps, help="default: %(default)s")
    parser.add_argument("--groups", type=int, default=Plan.groups, help="problems of a step (default: %(default)s)")
    parser.add_argument("--size", type=int, default=Plan.size, help="rollouts of a problem (default: %(default)s)")
    parser.add_argument(
        "--at-once", type=int, default=Plan.at_once, help="rollouts side by side (default: %(default)s)"
    )
    parser.add_argument("--evaluate", type=int, nargs=2, default=Plan.evaluated, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--break", dest="broken", type=Break, choices=list(Break), help="make a mistake in every step")
    parser.add_argument("--bare", action="store_true", help="a function in place of the environment")
    parser.add_argument("--out", type=Path, default=Path("outputs/learn"), help="default: %(default)s")
    return parser


def main() -> int:
    """Entry point; the exit code is 1 for a run that was not sound."""
    options = _parser().parse_args()
    logging.getLogger("verifiers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    plan = Plan(
        CURRICULA[options.curriculum](), options.out, Path(".cache/learn"), options.seed, options.steps, options.groups,
        options.size, options.at_once, tuple(options.evaluate), options.broken, options.bare,
    )  # fmt: skip
    run = Run(plan, _say)
    try:
        outcome = asyncio.run(run.go())
    except KeyboardInterrupt:
        _say(f"interrupted: the policy is in {plan.directory / 'policy.pt'}")
        return 130
    return _judged(outcome)


def _judged(outcome: Outcome) -> int:
    if outcome.findings:
        _say(f"this run was not sound; first: {outcome.findings[0]}")
    return 1 if outcome.findings else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
