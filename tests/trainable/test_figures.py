"""The figures of traces, groups and runs, on runs made by hand."""

from pathlib import Path

import pytest
from opencode_runs.trainable.inspection import inspect

from tests.difficulty.lines import episode, seat, write_run
from tests.trainable.doctored import group, nodes, sub, trace
from tests.trainable.graphs import answer, prompt


def test_tokens_are_counted_as_the_trainer_packs_them(tmp_path: Path) -> None:
    forked = [*nodes(), prompt(1, 9), answer(4, 10)]
    [found] = inspect([write_run(tmp_path / "run", [episode("a", trace(nodes=forked))])]).traces
    assert (found.branches, found.samples, found.forks) == (2, 2, 1)
    assert (found.trained_tokens, found.prompt_tokens) == (4, 5 + 6), "the second branch carries the first turn again"
    assert (found.longest, found.logprobs) == (8, 4)


def test_the_advantage_is_the_reward_less_the_mean_of_all_that_train_sub_traces_included(tmp_path: Path) -> None:
    lines = [episode("a", trace(1.0), sub(1.0))]
    lines.append(episode("a", trace(0.0), sub(None, agent=seat("sub", trainable=False))))
    lines.append(episode("a", trace(None, ok=False, errors=[{"type": "SandboxError"}])))
    report = inspect([write_run(tmp_path / "run", lines)])
    third = pytest.approx(1 / 3)
    assert [found.advantage for found in report.traces] == [third, third, pytest.approx(-2 / 3), None, None]
    [figures] = report.groups
    assert (figures.rollouts, figures.traces, figures.trained, figures.spread) == (3, 5, 3, 1.0)
    assert report.summary.unused == {'seat "sub" does not train': 1, "SandboxError": 1}


def test_groups_are_tasks_of_one_run_unless_the_trainer_says_otherwise(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, group(*rewards)) for name, rewards in (("one", (0, 1)), ("two", (1, 1)))]
    assert [found.advantage for found in inspect(runs).traces] == [-0.5, 0.5, 0.0, 0.0]
    trained = [line | {"group": {"id": name}} for name, line in zip("xyxy", group(0, 1, 1, 1), strict=True)]
    write_run(tmp_path / "rl" / "rollouts" / "step_2" / "train" / "all", trained)
    report = inspect([tmp_path / "rl"])
    assert {found.group: found.mean_reward for found in report.groups} == {"x": 0.5, "y": 1.0}


def test_all_steps_of_a_prime_rl_run_are_read_in_order_and_its_effective_part_once(tmp_path: Path) -> None:
    for step in (10, 9):
        lines = group(0, 1, key=f"step {step}")
        for part in ("all", "effective"):
            write_run(tmp_path / "rollouts" / f"step_{step}" / "train" / part, lines)
        write_run(tmp_path / "rollouts" / f"step_{step}" / "eval" / "all", group(1, key="held out"))
    assert [found.group for found in inspect([tmp_path]).groups] == ["step 9", "step 10"]
    assert [found.group for found in inspect([tmp_path / "rollouts" / "step_9"]).groups] == ["step 9"]


def test_an_evaluation_shows_what_its_groups_would_teach_and_which_logprobs_it_kept(tmp_path: Path) -> None:
    kept = {"logprobs": [{"node": 1, "tokens": ["a", "b"], "logprobs": [-0.5, -1.0]}]}
    plain = [{"sampled": False}, {"sampled": True, "parent": 0}]
    calls = [{"node": 1, "usage": {"completion_tokens": 2}}]
    lines = [episode("a", trace(reward, nodes=plain, info=kept, calls=calls)) for reward in (0.0, 1.0)]
    report = inspect([write_run(tmp_path / "run", lines)])
    assert [found.advantage for found in report.traces] == [-0.5, 0.5]
    assert {found.unused_because for found in report.traces} == {"no token data"}
    assert {(found.logprobs, found.sampled_tokens) for found in report.traces} == {(2, 2)}
    assert not report.usable
