"""Rating with the cloned policy picks the tasks that teach."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from examples.learn.bare import episode_line
from examples.learn.contextual import WORDS, Contextual
from examples.learn.curriculum import CONTENT, QUESTION
from examples.learn.curve import Step
from examples.learn.difficulty import RATED, recommended, rollouts_to_goal
from examples.learn.mixture import EASY, Mixture
from examples.learn.run import Plan, Run
from tests.learn.setting import RECORDED

TEACHING = [beginning for beginning, _ in WORDS]


@pytest.mark.usefixtures("programs")
def test_of_a_mixture_the_third_that_teaches_is_recommended(tmp_path: Path) -> None:
    curriculum = Mixture()
    lines = []
    for problem in curriculum.fresh(random.Random(0), len(curriculum.chosen)):
        passes = RATED if problem.name in EASY else RATED // 4 if problem.name in TEACHING else 0
        lines += [episode_line(problem, float(place < passes)) for place in range(RATED)]
    (tmp_path / "traces.jsonl").write_text("\n".join(lines) + "\n")
    assert sorted(recommended(tmp_path, curriculum, 8)) == sorted(TEACHING)


def test_the_goal_is_reached_when_the_latest_groups_of_all_wanted_tasks_are() -> None:
    def step(number: int, **rewards: float) -> Step:
        return Step(number, 32 * number, 0.0, 0, 0, 0, 0.0, 0.0, 0, 0, {}, rewards)

    steps = [step(1, a=1.0), step(2, b=0.5), step(3, a=0.9, other=0.0), step(4, b=0.9), step(5, a=1.0)]
    assert rollouts_to_goal(steps, ["a", "b"]) == 128
    assert rollouts_to_goal(steps[:3], ["a", "b"]) is None


def test_of_what_teaches_every_answer_is_shown_equally_often() -> None:
    draw = random.Random(0)
    for _ in range(20):
        shown = Counter((one[QUESTION], one[CONTENT]) for one in Mixture().demonstrations(draw))
        assert {shown[asked, ending] for asked, _ in WORDS for _, ending in WORDS} == {1}


def test_training_ends_when_it_is_enough(tmp_path: Path) -> None:
    plan = Plan(
        Contextual(), tmp_path, tmp_path / "cache", steps=9, groups=1, size=2, evaluated=(0, 0), bare=True,
        enough=lambda steps: len(steps) == 2,
    )  # fmt: skip
    assert len(asyncio.run(Run(plan, [RECORDED], lambda line: None).go()).steps) == 2
