"""The judge fallback against a real endpoint: when it is asked, what reaches it, and what is an error."""

import time
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_rubrics import HybridMathConfig, HybridMathRubric, JudgeError
from opencode_rubrics.judge import read_verdict
from verifiers.v1.configs.client import BaseClientConfig

from tests.rubrics.judge_server import JudgeServer, Step, judge_server
from tests.rubrics.math_support import Scored, score
from tests.support.machine import assert_no_longer


async def judged(
    server: JudgeServer, reference: str, reply: str, data: dict[str, Any] | None = None, **options: Any
) -> Scored:
    """One scoring with the judge switched on."""
    client = BaseClientConfig(base_url=server.url, api_key_var="NO_SUCH_KEY")
    config = HybridMathConfig(max_workers=1, use_judge_fallback=True, judge_client=client, **options)
    rubric = HybridMathRubric(config)
    try:
        return await score(rubric, None, reference, reply, **(data or {}))
    finally:
        await rubric.teardown()


@pytest.mark.parametrize(("text", "reward"), [("fine\nA", 1.0), ("no\nB", 0.0), ("C", 0.0), ("**Verdict: A**", 1.0)])
async def test_the_judge_decides_where_the_rules_say_no(text: str, reward: float) -> None:
    async with judge_server(Step(text)) as server:
        scored = await judged(server, "a prime number", r"\boxed{a number with two divisors}")
    rewards = {name: found.score for name, found in scored.trace.rewards.items() if found}
    assert rewards == {"correct_answer": reward, "judge_score": reward, "math_verify_score": 0.0}
    assert scored.record["decided_by"] == "judge"
    assert scored.record["judge_verdict"] == read_verdict(text)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (r"\boxed{4}", "equal"),
        ("", "empty"),
        (r"\boxed{4}, no, \boxed{5}", "conflicting"),
        ("<think>4", "unfinished_thinking"),
    ],
)
async def test_the_judge_is_not_asked_about_right_missing_or_conflicting_answers(reply: str, reason: str) -> None:
    async with judge_server(Step("A")) as server:
        scored = await judged(server, "4", reply)
        assert server.requests == []
    assert scored.reason == reason


async def test_question_reference_and_answer_reach_the_judge_as_they_are() -> None:
    question = [
        vf.SystemMessage(content="Be {brief}."),
        vf.UserMessage(content=[vf.TextContentPart(text="Name {answer} and {reference}.")]),
    ]
    answer = r"\boxed{the set \{x\} with {question} and {reference}}"
    async with judge_server(Step("A")) as server:
        scored = await judged(server, "{question} {0} %s", answer, {"prompt": question})
        prompt = server.requests[0]["messages"][0]["content"]
    assert "Be {brief}." in prompt
    assert "Name {answer} and {reference}." in prompt
    assert "{question} {0} %s" in prompt
    assert answer in prompt
    assert scored.reward == 1.0


async def test_model_sampling_and_prompt_can_be_set() -> None:
    prompt = "Q {question} R {reference} G {answer}. Last line A, B or C."
    sampling = {"temperature": 0.0, "max_tokens": 7, "top_k": 3}
    async with judge_server(Step("A")) as server:
        await judged(server, "one", r"\boxed{two}", judge_prompt=prompt, judge_model="m", judge_sampling=sampling)
        request = server.requests[0]
    assert request["messages"][0]["content"] == r"Q What is the value? R one G \boxed{two}. Last line A, B or C."
    assert (request["model"], request["temperature"], request["max_tokens"], request["top_k"]) == ("m", 0.0, 7, 3)


async def test_each_call_is_recorded_with_its_usage() -> None:
    async with judge_server(Step("because\nB")) as server:
        scored = await judged(server, "one", r"\boxed{two}")
    (call,) = scored.trace.info["judge_calls"]
    assert call["name"] == "math_judge"
    assert call["response"]["message"]["content"] == "because\nB"
    assert [usage.total_tokens for usage in scored.trace.extra_usage] == [14]


async def test_a_prompt_without_its_placeholders_is_refused() -> None:
    with pytest.raises(ValueError, match=r"judge_prompt must hold \{reference\}"):
        HybridMathConfig(judge_prompt="{question} {answer}")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_judge_is_asked_again(status: int) -> None:
    async with judge_server(Step(status=status), Step(status=status), Step("A")) as server:
        scored = await judged(server, "one", r"\boxed{two}")
        assert len(server.requests) == 3
    assert scored.reward == 1.0


@pytest.mark.parametrize(
    ("step", "message", "requests"),
    [
        (Step(status=503), "answered 503 after 1 retries", 2),
        (Step(status=429), "answered 429 after 1 retries", 2),
        (Step(status=401), "answered 401.*check judge_model, judge_client and its API key", 1),
        (Step(delay=5), "gave no reply.*raise judge_timeout", 2),
        (Step(raw="not json"), "replied with something else", 1),
        (Step(raw='{"choices": []}'), "replied with something else than a chat completion", 1),
        (Step(text=None, refusal="I will not"), "refused: I will not", 1),
        (Step(text="", finish="content_filter"), "refused: content filter", 1),
        (Step(text="Let me think", finish="length"), "cut off before its verdict.*max_tokens", 1),
        (Step(text="I cannot say a thing"), "gave no verdict A, B or C", 1),
        (Step(text=""), "gave no verdict", 1),
        (Step(text="<think>A"), "gave no verdict", 1),
    ],
)
async def test_no_verdict_is_an_error_that_says_what_to_do(step: Step, message: str, requests: int) -> None:
    async with judge_server(step) as server:
        seconds = 0.5 if step.delay else 60
        with pytest.raises(JudgeError, match=message):
            await judged(server, "one", r"\boxed{two}", judge_timeout=seconds, judge_max_retries=1)
        assert len(server.requests) == requests


async def test_a_judge_that_is_down_is_an_error_soon() -> None:
    server = JudgeServer([], url="http://127.0.0.1:9/v1")
    started = time.monotonic()
    with pytest.raises(JudgeError, match="check judge_client"):
        await judged(server, "one", r"\boxed{two}", judge_max_retries=1)
    assert_no_longer(time.monotonic() - started, 10)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("A", "A"), ("reason\n\nB\n", "B"), ("**C**", "C"), ("Verdict: A.", "A"), ("Final verdict: **B**", "B"),
        (r"\boxed{A}", "A"), ("<think>B</think>\nA", "A"), ("(A)", "A"), ("a", "A"),
        ("This is a wrong answer", None), ("A or B", None), ("A\nbut maybe not", None), ("", None), ("D", None),
    ],
)  # fmt: skip
def test_only_a_letter_alone_on_the_last_line_is_a_verdict(text: str, letter: str | None) -> None:
    assert read_verdict(text) == letter
