"""The shipped sample tasks, worked on for real by the scripted solutions."""

import shutil
import time
from pathlib import Path

import pytest
from opencode_env.samples import SAMPLES_PATH, Sample, load_samples
from opencode_env.scripted_model.solutions import SOLUTIONS

from tests.scripted_model.box import Box
from tests.support.machine import assert_no_longer

SAMPLES = load_samples()
FAILED_REWARDS = {"csv-report": 0.5, "pig-latin": 0.55, "rotate-logs": 2 / 3}

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[sample.id for sample in SAMPLES])


def test_there_are_ten_samples_with_their_own_ids_and_solutions() -> None:
    assert len({sample.id for sample in SAMPLES}) == len(SAMPLES) == 10
    assert {sample.id for sample in SAMPLES} == set(SOLUTIONS)
    assert len(SAMPLES_PATH.read_bytes().splitlines()) == 10


def test_every_sample_can_be_checked_and_no_question_holds_another() -> None:
    for sample in SAMPLES:
        assert (sample.answer is None) != (not sample.verify)
        assert not [other.id for other in SAMPLES if other is not sample and other.question in sample.question]


@needs_bubblewrap
@each_sample
def test_an_untouched_sample_earns_nothing(sample: Sample, tmp_path: Path) -> None:
    assert Box.prepared_for(tmp_path, sample).reward(sample) == 0


@needs_bubblewrap
@each_sample
def test_the_solving_path_earns_everything_and_checks_are_quick(sample: Sample, tmp_path: Path) -> None:
    box = Box.prepared_for(tmp_path, sample)
    box.play(SOLUTIONS[sample.id].solve)
    started = time.perf_counter()
    assert box.reward(sample) == 1
    assert_no_longer(time.perf_counter() - started, 5)


@needs_bubblewrap
@each_sample
def test_the_failing_path_earns_part_of_it_at_most(sample: Sample, tmp_path: Path) -> None:
    box = Box.prepared_for(tmp_path, sample)
    box.play(SOLUTIONS[sample.id].fail)
    assert box.reward(sample) == pytest.approx(FAILED_REWARDS.get(sample.id, 0.0))


@needs_bubblewrap
def test_a_solution_that_ends_the_checking_interpreter_early_earns_nothing(tmp_path: Path) -> None:
    sample = next(sample for sample in SAMPLES if sample.id == "fix-median")
    box = Box.prepared_for(tmp_path, sample)
    (tmp_path / "app" / "stats.py").write_text("import os\nmean = median = None\nos._exit(0)\n")
    assert box.reward(sample) == 0


@needs_bubblewrap
def test_modules_planted_beside_the_code_do_not_shadow_the_library(tmp_path: Path) -> None:
    sample = next(sample for sample in SAMPLES if sample.id == "csv-report")
    box = Box.prepared_for(tmp_path, sample)
    (tmp_path / "app" / "json.py").write_text("import sys\nsys.exit(0)\n")
    assert box.reward(sample) == 0


@pytest.mark.parametrize("path", ["solve", "fail"])
@each_sample
def test_solutions_take_two_to_five_turns_and_end_with_a_plain_text(sample: Sample, path: str) -> None:
    steps = getattr(SOLUTIONS[sample.id], path)
    assert 2 <= len(steps) <= 5
    assert all(step.tool_calls for step in steps[:-1])
    assert steps[-1].text
    assert not steps[-1].tool_calls
    assert not any(step.faults for step in steps)
