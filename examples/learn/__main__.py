"""`python -m examples.learn`: a policy from nothing that learns on rollouts of real OpenCode."""

import argparse
import math
import sys
from pathlib import Path

from examples.learn.breaking import Break
from examples.learn.carrying import Carry
from examples.learn.command import at_least, exit_code, say
from examples.learn.comparing import GOAL, Comparison, compare, mean_line
from examples.learn.contextual import Contextual
from examples.learn.copying import Copy, CopyByTurns
from examples.learn.curriculum import Curriculum
from examples.learn.prime_environment import is_checkout, is_here, run_there
from examples.learn.recording import record
from examples.learn.recursion import Recursion
from examples.learn.run import Outcome, Plan, Run

CURRICULA: dict[str, Curriculum] = {
    "contextual": Contextual(),
    "copy": Copy(),
    "carry": Carry(),
    "carry-frozen": Carry("frozen"),
    "no-carry-frozen": Carry("frozen", needed=False),
    "recursion": Recursion(),
    "recursion-frozen": Recursion("frozen"),
}
"""By name; in the frozen ones what sub calls or summaries say is not trained."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.learn", description=__doc__)
    add = parser.add_argument
    add("curriculum", nargs="?", choices=CURRICULA, default="contextual")
    add("--seeds", type=int, nargs="+", default=[0], metavar="SEED", help="a run for each (default: 0)")
    add("--steps", type=at_least(0), default=Plan.steps, help="default: %(default)s")
    add("--groups", type=at_least(1), default=Plan.groups, help="problems of a step (default: %(default)s)")
    add("--size", type=at_least(2), default=Plan.size, help="rollouts of a problem (default: %(default)s)")
    add("--at-once", type=at_least(1), default=Plan.at_once, help="rollouts side by side (default: %(default)s)")
    evaluations = "rollouts that evaluate the cloned policy and the trained one (default: %(default)s)"
    add("--evaluate", type=at_least(0), nargs=2, default=Plan.evaluated, metavar=("BEFORE", "AFTER"), help=evaluations)
    add("--goal", type=float, help="reward that each run has to end with, for exit code 0")
    add("--break", dest="broken", type=Break, choices=list(Break), help="make a mistake in every step")
    branch = "for copy, a letter a turn: half of the groups from kept turns, and once more without; tokens to --goal"
    add("--branch", action="store_true", help=branch)
    add("--bare", action="store_true", help="a function in place of the environment")
    add("--prime-rl", type=Path, metavar="PATH", help="the trainer of a checkout of prime-rl, in place of ours")
    add("--out", type=Path, default=Path("outputs/learn"), help="default: %(default)s")
    return parser


def main() -> int:
    """Entry point; the exit code is 0 if every run was sound, without a mistake on purpose, and reached the goal."""
    parser = _parser()
    options = parser.parse_args()
    if options.broken is Break.ECHO and (options.bare or CURRICULA[options.curriculum].sub_calls):
        parser.error("--break echo needs OpenCode's own history: without --bare, and of a curriculum without sub calls")
    several = CURRICULA[options.curriculum].sub_calls or CURRICULA[options.curriculum].summaries
    if options.prime_rl and (options.bare or options.broken or several):
        parser.error("--prime-rl goes without --bare and --break, and with a curriculum of one conversation")
    if options.branch and (options.curriculum != "copy" or options.broken or options.prime_rl):
        parser.error("--branch goes with copy, and without --break and --prime-rl")
    if (options.branch or options.goal is not None) and not (options.steps and options.evaluate[1]):
        parser.error(
            f"{'--branch' if options.branch else '--goal'} needs --steps, and rollouts of an evaluation after them"
        )
    if options.broken and options.steps < (2 if options.broken is Break.STALE else 1):
        parser.error(f"--break {options.broken} needs more --steps")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out: {options.out} is not a directory")
    if options.prime_rl and not is_checkout(options.prime_rl):
        parser.error(
            f"--prime-rl: {options.prime_rl} is not a checkout of prime-rl: it has no packages/prime-rl-configs"
        )
    if options.prime_rl and not is_here():
        run_there(options.prime_rl, sys.argv[1:])
    return exit_code(_comparisons(options) if options.branch else _runs(options))


async def _runs(options: argparse.Namespace) -> bool:
    """A run for each seed and a line about each; whether all were sound and reached the goal."""
    say("recording one rollout of the script")
    curriculum = CURRICULA[options.curriculum]
    recorded = await record(curriculum, options.out / "bytes")
    lines, sound = [], True
    for seed in options.seeds:
        directory = options.out / f"seed-{seed}"
        plan = Plan(
            curriculum, directory, Path(".cache/learn"), seed, options.steps, options.groups, options.size,
            options.at_once, tuple(options.evaluate), options.broken, options.bare,
        )  # fmt: skip
        outcome = await _trainer(options)(plan, recorded, say).go()
        lines.append(_line(seed, outcome, options.broken))
        sound &= not (outcome.findings or options.broken) and (options.goal is None or outcome.trained >= options.goal)
        say(lines[-1])
    say("\n".join(["", *lines]))
    return sound


async def _comparisons(options: argparse.Namespace) -> bool:
    """Runs with kept turns and without for each seed; whether all were sound and reached the goal."""
    say("recording one rollout of the script")
    curriculum, goal = CopyByTurns(), options.goal or GOAL
    recorded = await record(curriculum, options.out / "bytes")
    compared: list[Comparison] = []
    for seed in options.seeds:
        plan = Plan(
            curriculum, options.out / f"seed-{seed}", Path(".cache/learn"), seed, options.steps, options.groups,
            options.size, options.at_once, (0, 0), bare=options.bare, watched=options.evaluate[1],
        )  # fmt: skip
        compared.append(await compare(plan, recorded, goal))
    say("\n".join(["", *(one.line() for one in compared), mean_line(compared)]))
    return all(one.ratio is not None and not one.findings for one in compared)


def _trainer(options: argparse.Namespace) -> type[Run]:
    """What carries plans out; prime-rl can be imported in its own environment only."""
    if not options.prime_rl:
        return Run
    from examples.learn.prime import PrimeRun

    return PrimeRun


def _line(seed: int, outcome: Outcome, broken: Break | None) -> str:
    reached = outcome.rollouts_to(0.9)
    what = f"0.9 after {reached} rollouts" if reached else "0.9 not reached"
    verdict = f"the mistake {broken} was not found" if broken else "sound"
    if outcome.findings:
        verdict = f"not sound; {outcome.findings[0]}"
    rewards = {"cloned": outcome.cloned, "trained": outcome.trained}
    evaluated = "".join(f"{name} {reward:.2f}, " for name, reward in rewards.items() if not math.isnan(reward))
    return f"seed {seed}: {evaluated}{what}, {verdict}"


if __name__ == "__main__":
    sys.exit(main())
