"""Groups of rubrics, and what keeps one from scoring or from being read."""

import pytest
import verifiers.v1 as vf
from opencode_rubrics import RubricGroup, RubricGroupConfig, live_rubric, rubrics_in_use, run_cleanup
from pydantic import ValidationError

from tests.rubrics.conftest import CheckedData, trace_of
from tests.rubrics.math_support import score
from tests.rubrics.test_any_rubric import LENGTH


def group(*members: dict[str, object]) -> RubricGroupConfig:
    return RubricGroupConfig.model_validate({"members": members})


@pytest.mark.usefixtures("programs")
async def test_a_group_weighs_and_records_the_rewards_of_all_its_members() -> None:
    config = group(
        {"rubric": {"type": "hybrid-math", "max_workers": 1}, "weight": 0.75},
        {"rubric": {"type": LENGTH, "most": 3}, "weight": 0.25},
        {"rubric": {"type": "hybrid-math", "max_workers": 1, "timeout_seconds": 4}, "weight": 0},
    )
    async with rubrics_in_use():
        rubric = live_rubric(config)
        assert isinstance(rubric, RubricGroup)
        scored = await score(rubric, None, "4", r"\boxed{4}")
        rewards = {name: (reward.score, reward.weight) for name, reward in scored.trace.rewards.items() if reward}
        assert rewards["correct_answer"] == (1.0, 0.75)
        assert rewards["short"] == (0.0, 0.25)
        assert rewards["correct_answer_2"] == (1.0, 0.0)
        assert scored.reward == 0.75
        assert {"conflicting_answers", "conflicting_answers_2"} <= set(scored.trace.metrics)
        await run_cleanup([rubric, *rubric.members], {"trace": scored.trace})
        assert scored.trace.info["tidied"] is True


async def test_a_member_that_cannot_score_fails_the_whole_and_keeps_what_was_recorded() -> None:
    config = group({"rubric": {"type": LENGTH}}, {"rubric": {"type": "hybrid-math"}})
    async with rubrics_in_use():
        data = CheckedData(prompt="?", answer=None)
        trace = trace_of(data, "short")
        with pytest.raises(vf.TaskError, match="needs a task with an answer"):
            await live_rubric(config).score(data, trace, None)
    assert trace.rewards["short"] is not None
    assert trace.rewards["correct_answer"] is None


def test_an_empty_group_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least one member"):
        group()
