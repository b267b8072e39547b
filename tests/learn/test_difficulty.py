"""Rating with the cloned policy picks the tasks that teach."""

import random
from pathlib import Path

from examples.learn.bare import episode_line
from examples.learn.contextual import WORDS
from examples.learn.curve import Step
from examples.learn.difficulty import RATED, recommended, rollouts_to_goal
from examples.learn.mixture import EASY, Mixture

TEACHING = [beginning for beginning, _ in WORDS]


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
