"""`python -m examples.learn.difficulty`: does rating tasks with the cloned policy, to train on some, pay for itself?

The rollouts of the cloned policy are a run as `opencode-difficulty` reads it; the band that it recommends is trained
on, and for comparison everything is. Both go on until every task that can be learnt is solved.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyarrow.parquet import read_table

from examples.learn.command import at_least, exit_code, say
from examples.learn.contextual import WORDS
from examples.learn.curve import Step
from examples.learn.mixture import Mixture
from examples.learn.recording import record
from examples.learn.run import Plan, Run
from examples.learn.transcript import Transcript

RATED = 16
"""Rollouts of a task that rate it."""
GOAL = 0.9


@dataclass(frozen=True)
class Comparison:
    """Rollouts to the goal of one seed; None: never reached."""

    seed: int
    band: Sequence[str]
    rating: int
    on_band: int | None
    on_everything: int | None
    findings: Sequence[str] = ()
    """What was wrong with its runs."""

    def line(self) -> str:
        """The figures on one line."""
        ratio = "-"
        if self.on_band and self.on_everything:
            ratio = f"{(self.rating + self.on_band) / self.on_everything:.2f}"
        return (
            f"seed {self.seed}: rating {self.rating} + band {self.on_band} ({' '.join(sorted(self.band))}), "
            f"everything {self.on_everything}, ratio {ratio}"
        )


def rollouts_to_goal(steps: Sequence[Step], wanted: Sequence[str]) -> int | None:
    """Training rollouts until the latest groups of all wanted tasks have the goal as their mean reward."""
    latest: dict[str, float] = {}
    for step in steps:
        latest |= {name: reward for name, reward in step.by_group.items() if name in wanted}
        if len(latest) == len(wanted) and sum(latest.values()) >= GOAL * len(wanted):
            return step.rollouts
    return None


def recommended(directory: Path, curriculum: Mixture, size: int) -> list[str]:
    """The tasks of the band that `opencode-difficulty` recommends for the run in a directory.

    Raises:
        CalledProcessError: a command failed; its message is on standard error.
    """
    tasks, rated = directory / "tasks.jsonl", directory / "rated.parquet"
    problems = [curriculum.problem(name) for name in curriculum.chosen]
    rows = [{"id": one.name, "question": one.question, "verify": one.verify} for one in problems]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    say(_difficulty("rate", str(directory), "--rows", "0"))
    _difficulty("join", str(tasks), str(directory), "-o", str(rated), "--force")
    say(_difficulty("recommend", str(rated), "-G", str(size)))
    band = json.loads(_difficulty("recommend", str(rated), "-G", str(size), "--json"))
    return [
        row["id"]
        for row in read_table(rated, columns=["id", "avg_reward"]).to_pylist()
        if band["min_avg_reward"] <= row["avg_reward"] <= band["max_avg_reward"]
    ]


def _difficulty(*arguments: str) -> str:
    command = [sys.executable, "-m", "opencode_runs.difficulty", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


async def compare(recorded: Sequence[Transcript], options: argparse.Namespace, seed: int) -> Comparison:
    """Rate, then train on the band and on everything, from the same cloned policy."""
    whole = Mixture()
    directory = options.out / f"seed-{seed}"
    rating = len(whole.chosen) * RATED
    plan = Plan(
        whole, directory / "rating", Path(".cache/learn"), seed, steps=0, evaluated=(rating, 0), bare=options.bare
    )
    outcome = await Run(plan, recorded, say).go()
    (plan.directory / "traces.jsonl").write_text("".join(one.line + "\n" for one in outcome.first if one.line))
    band = await asyncio.to_thread(recommended, plan.directory, whole, plan.size)
    wanted, reached = [beginning for beginning, _ in WORDS], []
    found: list[str] = []
    for name, chosen in {"band": band, "everything": whole.chosen}.items():
        steps = options.steps * len(chosen) // len(wanted)
        curriculum = replace(whole, chosen=tuple(chosen))
        going = replace(
            plan, curriculum=curriculum, directory=directory / name, steps=steps, evaluated=(0, 0),
            enough=lambda steps: rollouts_to_goal(steps, wanted) is not None,
        )  # fmt: skip
        outcome = await Run(going, recorded, say).go()
        reached.append(rollouts_to_goal(outcome.steps, wanted))
        found += outcome.findings
    on_band, on_everything = reached
    return Comparison(seed, band, rating, on_band, on_everything, found)


async def _compare_all(options: argparse.Namespace) -> bool:
    """Whether all was sound."""
    recorded = await record(Mixture(), options.out / "bytes")
    compared = [await compare(recorded, options, seed) for seed in options.seeds]
    say("\n".join(one.line() for one in compared))
    return not any(one.findings for one in compared)


def main() -> int:
    """Entry point; the exit code is 1 if a run was not sound, or no band can be recommended."""
    parser = argparse.ArgumentParser(prog="python -m examples.learn.difficulty", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="SEED")
    parser.add_argument(
        "--steps", type=at_least(1), default=18, help="for as many tasks as teach (default: %(default)s)"
    )
    parser.add_argument("--bare", action="store_true", help="a function in place of the environment")
    parser.add_argument("--out", type=Path, default=Path("outputs/learn-difficulty"), help="default: %(default)s")
    options = parser.parse_args()
    try:
        return exit_code(_compare_all(options))
    except subprocess.CalledProcessError:  # it has said why
        return 1


if __name__ == "__main__":
    sys.exit(main())
