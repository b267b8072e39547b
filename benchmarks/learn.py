"""What the environment of `make learn` costs: our part of a rollout, and the whole one, ÷ a bare function in its place.

Both play the same problems of a curriculum, the same script speaking in place of the model: real OpenCode in confined
local sandboxes, one rollout after the other, through interception and training client; and the function of
`examples/learn/bare.py`, the baseline. Our part is the seconds of a rollout in which no agent runs (sandbox, scoring),
and the CPU of this process, which interception, client and environment have while one does; some of that is in both.

Run: uv run python benchmarks/learn.py [--json] [--rollouts 16]
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, report
from examples.learn.bare import play_bare
from examples.learn.contextual import Contextual
from examples.learn.curriculum import CONTENT, QUESTION, Problem, fill
from examples.learn.engine import Engine
from examples.learn.recording import record
from examples.learn.rollouts import MODEL, Rollout, playing
from examples.learn.spoken import Spoken
from examples.learn.tokenizer import ASSISTANT, END, build_tokenizer, save
from examples.learn.transcript import Transcript

GOALS = {"our_part_of_rollout": 0.25}
BARE_ROUNDS = 20
"""How often the bare function plays the problems."""


@dataclass(frozen=True)
class Seconds:
    """Of one rollout, the mean."""

    whole: float
    sandbox: float = 0.0
    scoring: float = 0.0
    process: float = 0.0
    """CPU of this process."""

    @property
    def ours(self) -> float:
        return self.sandbox + self.scoring + self.process


class Script:
    """Speaks as a model does that solves every problem of the curriculum."""

    def __init__(self, tokenizer: Any, problems: Sequence[Problem]) -> None:
        self._tokenizer = tokenizer
        (self._turns,) = Contextual().scripts
        self._contents = {problem.question: problem.answer[len(problem.question) :] for problem in problems}

    def __call__(self, prompts: Sequence[Sequence[int]]) -> list[Spoken]:
        said = []
        for text in map(self._tokenizer.decode, prompts):
            first = text.partition(ASSISTANT)[0]
            (asked,) = (question for question in self._contents if f"\n{question}<" in first)
            turn = fill(self._turns[text.count(ASSISTANT) - 1], {QUESTION: asked, CONTENT: self._contents[asked]})
            said.append(self._tokenizer.encode(turn + END, add_special_tokens=False))
        return [Spoken(tokens, [-1.0] * len(tokens), stopped=True) for tokens in said]


def checked(rollouts: Sequence[Rollout]) -> Sequence[Rollout]:
    """The rollouts, all of which solved their problems."""
    failed = [rollout for rollout in rollouts if rollout.error or rollout.reward != 1.0]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(rollouts)} rollouts did not play the script: {failed[0]}")
    return rollouts


async def with_opencode(script: Script, tokenizer: Path, problems: Sequence[tuple[str, Problem]]) -> Seconds:
    """Through our environment, one after the other, after one that is not counted."""
    async with Engine(script, MODEL).serving() as url, playing(url, tokenizer, 1) as player:
        checked(await player.play(problems[:1]))
        started, process = time.perf_counter(), time.process_time()
        rollouts = checked(await player.play(problems))
        count = len(rollouts)
        whole, process = (time.perf_counter() - started) / count, (time.process_time() - process) / count
    sandbox, scoring = (sum(one.stages[stage] for one in rollouts) / count for stage in ("sandbox", "scoring"))
    return Seconds(whole, sandbox, scoring, process)


def without(
    script: Script, recorded: Sequence[Transcript], tokenizer: Any, problems: Sequence[tuple[str, Problem]]
) -> Seconds:
    """Through the bare function."""
    checked(play_bare(script, recorded, tokenizer, Contextual(), problems))
    started = time.perf_counter()
    for _ in range(BARE_ROUNDS):
        for problem in problems:
            checked(play_bare(script, recorded, tokenizer, Contextual(), [problem]))
    return Seconds((time.perf_counter() - started) / BARE_ROUNDS / len(problems))


async def measure(count: int, directory: Path) -> tuple[Seconds, Seconds]:
    """A rollout of OpenCode and one of the bare function."""
    problems = Contextual().fresh(random.Random(0), count)
    recorded = await record(Contextual(), directory)
    tokenizer = build_tokenizer([text for one in recorded for text in one.constants], [one.rest for one in recorded])
    script, named = Script(tokenizer, problems), [(problem.name, problem) for problem in problems]
    ours = await with_opencode(script, save(tokenizer, directory / "words"), named)
    return ours, without(script, recorded, tokenizer, named)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--rollouts", type=int, default=16, help="of each (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        ours, bare = asyncio.run(measure(options.rollouts, Path(directory)))
    ratios = {
        "our_part_of_bare_function": ours.ours / bare.whole,
        "rollout_of_bare_function": ours.whole / bare.whole,
        "our_part_of_rollout": ours.ours / ours.whole,
    }
    detail = {
        "rollout": f"{ours.whole:.2f} s: sandbox {ours.sandbox:.3f}, scoring {ours.scoring:.3f}, of this process "
        f"{ours.process:.3f} CPU-s, the agent's the rest",
        "bare function": f"{bare.whole * 1000:.2f} ms",
    }
    report("learn", ratios, GOALS, {**detail, **machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
