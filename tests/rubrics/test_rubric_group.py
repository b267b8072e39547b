"""Groups of rubrics, and rubrics of other packages under the type `third-party`."""

from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_rubrics import RubricGroup, RubricGroupConfig, live_rubric, rubrics_in_use, run_cleanup
from pydantic import ValidationError

from tests.rubrics.conftest import CheckedData, trace_of
from tests.rubrics.math_support import score
from tests.rubrics.test_any_rubric import HERE, LENGTH, announce, read


def group(*members: dict[str, object]) -> RubricGroupConfig:
    return RubricGroupConfig.model_validate({"members": members})


@pytest.mark.usefixtures("programs")
async def test_a_group_weighs_and_records_the_rewards_of_all_its_members() -> None:
    config = group(
        {"rubric": {"type": "hybrid-math", "max_workers": 1}, "weight": 0.75},
        {"rubric": {"type": "third-party", "rubric": LENGTH, "options": {"most": 3}}, "weight": 0.25},
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
    config = group({"rubric": {"type": "third-party", "rubric": LENGTH}}, {"rubric": {"type": "hybrid-math"}})
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


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"rubric": LENGTH, "options": {"least": 2}}, "least"),
        ({"rubric": LENGTH, "options": {"most": "many"}}, "most"),
        ({"rubric": f"{HERE}:NoRubric"}, "is not a rubric class"),
        ({"rubric": f"{HERE}:Missing"}, "cannot be imported"),
        ({"rubric": "no_such_package:Rubric"}, "cannot be imported"),
        ({"rubric": "nobody-announced-this"}, "no installed package announces"),
        ({"rubric": LENGTH, "most": 2}, "a table `options`"),
        ({"rubric": LENGTH, "options": "most"}, "a table `options`"),
    ],
)
def test_a_wrong_rubric_of_another_package_is_refused_with_the_reason(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        read(type="third-party", **fields)


async def test_a_package_announces_its_rubric_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(tmp_path, "somebodys_rubrics", f"length = {LENGTH}")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = read(type="third-party", rubric="length", options={"most": 2})
    async with rubrics_in_use():
        assert (await score(live_rubric(config), None, "4", "12")).reward == 1.0
        assert (await score(live_rubric(config), None, "4", "123")).reward == 0.0
