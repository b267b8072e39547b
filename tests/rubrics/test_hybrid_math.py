"""`HybridMathRubric`: rewards, what is recorded, where the answer comes from, and what is not an answer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, HybridMathConfig, HybridMathRubric, ScoringError, live_rubric, rubrics_in_use
from verifiers.v1.task import Task

from tests.rubrics.conftest import CheckedData, trace_of
from tests.rubrics.math_support import score

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rubric(programs: None) -> AsyncIterator[HybridMathRubric]:
    made = HybridMathRubric(HybridMathConfig(max_workers=1))
    yield made
    await made.teardown()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def file_rubric(programs: None) -> AsyncIterator[HybridMathRubric]:
    made = HybridMathRubric(HybridMathConfig(max_workers=1, answer_source="file", max_answer_bytes=4096))
    yield made
    await made.teardown()


async def test_a_right_reply_earns_one_and_says_how(rubric: HybridMathRubric) -> None:
    scored = await score(rubric, None, "0.5", r"<think>\boxed{1}</think> so \boxed{\frac{1}{2}}")
    rewards = {name: (reward.score, reward.weight) for name, reward in scored.trace.rewards.items() if reward}
    assert rewards == {"correct_answer": (1.0, 1.0), "judge_score": (0.0, 0.0), "math_verify_score": (1.0, 0.0)}
    assert scored.reward == 1.0
    assert (scored.record["decided_by"], scored.reason, scored.record["answer"]) == ("rules", "equal", r"\frac{1}{2}")
    assert scored.record["correct"] is True
    assert scored.record["seconds"] >= scored.record["rules_seconds"] > 0
    assert scored.trace.metrics["conflicting_answers"] == 0
    assert scored.trace.metrics["scoring_seconds"] == pytest.approx(scored.record["seconds"], abs=1e-3)


@pytest.mark.parametrize(
    ("reply", "reason", "decided"),
    [
        (r"\boxed{0.25}", "different", "rules"),
        ("one half", "no_box", "rules"),
        ("", "empty", "none"),
        (r"\boxed{0.5", "unbalanced_box", "rules"),
        (r"\boxed{0.5}, no, \boxed{0.25}", "conflicting", "rules"),
        ("x" * 70_000 + r"\boxed{0.5}", "oversized", "none"),
    ],
)
async def test_any_other_reply_earns_nothing_and_says_why(
    rubric: HybridMathRubric, reply: str, reason: str, decided: str
) -> None:
    scored = await score(rubric, None, "0.5", reply)
    assert (scored.reward, scored.reason, scored.record["decided_by"]) == (0, reason, decided)
    assert scored.trace.metrics["conflicting_answers"] == float(reason == "conflicting")


@pytest.mark.parametrize("reference", [None, "", "  "])
async def test_a_task_without_an_answer_is_an_error(rubric: HybridMathRubric, reference: str | None) -> None:
    with pytest.raises(ScoringError, match="needs a task with an answer"):
        await score(rubric, None, reference, r"\boxed{1}")


async def test_many_rollouts_are_scored_at_once_without_mixing_them_up(rubric: HybridMathRubric) -> None:
    scored = await asyncio.gather(*(score(rubric, None, str(n), rf"\boxed{{{n // 2 * 2}}}") for n in range(60)))
    assert [one.reward for one in scored] == [float(n % 2 == 0) for n in range(60)]
    assert [one.record["answer"] for one in scored] == [str(n // 2 * 2) for n in range(60)]


MAKE = {
    "absent": "true",
    "symlink": "echo 5 > /app/real; ln -s /app/real /app/answer.txt",
    "not_a_file": "mkfifo /app/answer.txt",
    "oversized": "truncate -s 2G /app/answer.txt",
    "binary": "printf '5\\0' > /app/answer.txt",
    "empty": "printf '\\n \\n' > /app/answer.txt",
    "equal": "echo 'the answer is 5' > /app/answer.txt",
}


@pytest.mark.parametrize("reason", list(MAKE))
async def test_a_file_as_answer_is_read_bounded(
    file_rubric: HybridMathRubric, shared_confined: vf.Runtime, reason: str
) -> None:
    made = await shared_confined.run(["sh", "-c", f"rm -f /app/*; {MAKE[reason]}"], {})
    assert made.exit_code == 0
    scored = await score(file_rubric, shared_confined, "5")
    assert (scored.reward, scored.reason) == (float(reason == "equal"), reason)


async def test_a_file_as_answer_needs_a_sandbox(file_rubric: HybridMathRubric) -> None:
    with pytest.raises(ScoringError, match="needs a live sandbox"):
        await score(file_rubric, None, "5")


class ForeignTask(Task[CheckedData]):
    """A v1 task of somebody else, scored by our rubric as the README shows."""

    async def score(self, trace: AnyTrace, runtime: vf.Runtime | None = None, deployment: Any = None) -> None:
        await live_rubric(HybridMathConfig(max_workers=1)).score(self.data, trace, runtime)


@pytest.mark.usefixtures("programs")
async def test_any_task_can_use_the_rubric_and_the_registry_tears_it_down() -> None:
    data = CheckedData(prompt="?", answer="7")
    trace = trace_of(data, r"\boxed{7}")
    async with rubrics_in_use():
        await ForeignTask(data).score(trace, None)
        rubric = live_rubric(HybridMathConfig(max_workers=1))
    assert trace.reward == 1.0
    assert live_rubric(HybridMathConfig(max_workers=1)) is not rubric
